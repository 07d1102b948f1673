/*
 * The page of flame-backend. Everything that comes from the server is set as text, never as markup. The
 * token stays in this tab's sessionStorage and travels in the Authorization header only; therefore drawings
 * are fetched here and shown from a blob: URL, in a frame that has no origin of its own.
 */
'use strict';

const $ = (id) => document.getElementById(id);
const dateOf = (ms) => new Date(ms).toISOString().replace('T', ' ').slice(0, 19);

function el(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function say(text, bad) {
  $('message').textContent = text;
  $('message').className = bad ? 'bad' : '';
}

async function ask(path, options = {}) {
  const headers = Object.assign({}, options.headers);
  const token = sessionStorage.getItem('token');
  if (token) headers.Authorization = 'Bearer ' + token;
  const answer = await fetch(path, Object.assign({}, options, { headers, cache: 'no-store', credentials: 'omit' }));
  if (answer.ok) return answer;
  let why = answer.status + ' ' + answer.statusText;
  try { why = (await answer.json()).message; } catch (e) { /* the status says enough */ }
  throw new Error(why);
}

function human(value, steps, units) {
  let i = 0;
  while (i < steps.length && Math.abs(value) >= steps[i]) value /= steps[i++];
  return (i ? value.toFixed(Math.abs(value) < 10 ? 1 : 0) : Math.round(value)) + ' ' + units[i];
}
const bytes = (n) => human(n, [1000, 1000, 1000], ['B', 'kB', 'MB', 'GB']);
const span = (ms) => human(ms, [1000, 60, 60, 24], ['ms', 's', 'min', 'h', 'd']);

function range() {
  const p = new URLSearchParams();
  p.set('from', $('from').value);
  p.set('until', $('until').value);
  return p;
}

let shown = null; // the blob: URL of the drawing

async function showGraph(service, view) {
  const p = range();
  p.set('service', service);
  if (view) p.set('view', view);
  p.set('title', view ? service + ', ' + view : service);
  say('Drawing ' + service + '...');
  // What is shown stands in the address, so that it can be passed on; the token does not.
  history.replaceState(null, '', '#' + new URLSearchParams({ service, view: view || '', from: $('from').value, until: $('until').value }));
  try {
    const blob = await (await ask('api/v1/flamegraph.svg?' + p)).blob();
    if (shown) URL.revokeObjectURL(shown);
    shown = URL.createObjectURL(blob);
    $('graph').hidden = false;
    $('graph-title').textContent = 'Flame graph of ' + service + (view ? ', ' + view : '');
    $('graph-frame').src = shown;
    const links = $('graph-links');
    links.replaceChildren();
    for (const [name, suffix] of [['SVG', 'svg'], ['folded', 'folded'], ['pprof', 'pb.gz'], ['JSON', '']]) {
      const b = el('button', 'Save ' + name);
      b.type = 'button';
      b.onclick = () => save(suffix, p);
      links.append(b);
    }
    $('graph').scrollIntoView({ block: 'start' });
    say('');
  } catch (e) { say(e.message, true); }
}

async function save(suffix, p) {
  try {
    const blob = await (await ask('api/v1/flamegraph' + (suffix ? '.' + suffix : '') + '?' + p)).blob();
    const a = el('a');
    a.href = URL.createObjectURL(blob);
    a.download = 'flamegraph.' + (suffix || 'json');
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 60000);
  } catch (e) { say(e.message, true); }
}

function rows(table, list, empty, columns, make) {
  const body = $(table).tBodies[0];
  body.replaceChildren();
  if (!list.length) {
    const td = el('td', empty, 'dim');
    td.colSpan = columns;
    body.append(el('tr'));
    body.rows[0].append(td);
  }
  for (const item of list) {
    const tr = el('tr');
    for (const cell of make(item)) tr.append(cell);
    body.append(tr);
  }
}

function names(id, list) {
  $(id).replaceChildren(...list.map((n) => { const o = el('option'); o.value = n; return o; }));
}

async function loadServices() {
  const list = await (await ask('api/v1/services?' + range())).json();
  names('service-names', list.map((s) => s.service));
  rows('services', list, 'No data in this range.', 3, (s) => {
    const graphs = el('td');
    for (const view of new Set(s.views.map((v) => v.view))) {
      const b = el('button', view || 'all');
      b.type = 'button';
      b.onclick = () => showGraph(s.service, view);
      graphs.append(b);
    }
    return [el('td', s.service), graphs, el('td', dateOf(Math.max(...s.views.map((v) => v.last_unix_ms))))];
  });
}

// A page of hosts at a time: a fleet's whole list would take seconds to lay out.
const HOSTS_PAGE = 200;
let hosts = [];

async function loadHosts(more) {
  const after = more && hosts.length ? '&after=' + encodeURIComponent(hosts[hosts.length - 1].instance) : '';
  const list = await (await ask('api/v1/hosts?limit=' + HOSTS_PAGE + after)).json();
  hosts = more ? hosts.concat(list) : list;
  $('hosts-more').hidden = list.length < HOSTS_PAGE;
  names('host-names', hosts.map((h) => h.host));
  rows('hosts', hosts, 'No agent has reported yet.', 10, (h) => {
    const cpu = h.own.uptime_ns ? (100 * h.own.cpu_ns / h.own.uptime_ns).toFixed(2) + ' %' : '';
    const lost = (n) => el('td', String(n), n ? 'n bad' : 'n');
    const host = el('td', h.host);
    host.title = [h.instance, h.kernel, h.arch, h.cpus + ' CPUs'].join('\n');
    const state = el('td', h.alive ? h.state : 'silent', h.alive && h.state !== 'error' ? '' : 'bad');
    if (h.state_text) state.append(': ' + h.state_text);
    const version = el('td', h.agent_version);
    if (h.wanted_version && h.wanted_version !== h.agent_version) {
      version.className = 'bad';
      version.append(' (wanted: ' + h.wanted_version + ')');
    }
    return [host, version, state, el('td', cpu, 'n'),
      el('td', bytes(h.own.rss_bytes + h.own.kernel_bytes), 'n'), lost(h.losses.samples), lost(h.losses.windows_dropped),
      el('td', h.spool.windows ? h.spool.windows + ' (' + bytes(h.spool.bytes) + ')' : '0', 'n'),
      el('td', span(h.skew_ms), Math.abs(h.skew_ms) > 60000 ? 'n bad' : 'n'),
      el('td', span(h.age_ms) + ' ago', h.alive ? 'n' : 'n bad')];
  });
}

async function loadRequests() {
  const list = (await (await ask('api/v1/requests')).json()).requests;
  rows('requests', list.slice(0, 20), 'Nothing was asked for yet.', 8, (q) => {
    const action = el('td');
    if (['pending', 'sent', 'running'].includes(q.state)) {
      const b = el('button', 'Cancel');
      b.type = 'button';
      b.onclick = async () => {
        try { await ask('api/v1/requests/' + encodeURIComponent(q.id), { method: 'DELETE' }); } catch (e) { say(e.message, true); }
        loadRequests().catch((e) => say(e.message, true));
      };
      action.append(b);
    }
    return [el('td', dateOf(q.created_unix_ms)), el('td', q.id), el('td', q.state, q.state === 'failed' ? 'bad' : ''),
      el('td', q.view), el('td', String(q.hosts), 'n'), el('td', String(q.done), 'n'), el('td', String(q.failed), 'n'), action];
  });
}

async function load() {
  say('');
  for (const part of await Promise.allSettled([loadServices(), loadHosts(), loadRequests()]))
    if (part.status === 'rejected') say(part.reason.message, true);
}

async function request(form) {
  const f = new FormData(form);
  const body = { view: f.get('view'), frequency_hz: Number(f.get('frequency_hz')), duration_s: Number(f.get('duration_s')),
    dry_run: f.get('dry_run') === 'on' };
  if (f.get('service')) body.services = [f.get('service')];
  if (f.get('host')) body.hosts = [f.get('host')];
  try {
    const made = await (await ask('api/v1/requests', { method: 'POST', body: JSON.stringify(body),
      headers: { 'Content-Type': 'application/json' } })).json();
    await loadRequests();
    say((made.dry_run ? 'Would profile: ' : 'Asked: ') + made.commands.map((c) => c.host).join(', '));
  } catch (e) { say(e.message, true); }
}

$('time').onsubmit = (e) => { e.preventDefault(); load(); };
$('hosts-more').onclick = () => loadHosts(true).catch((e) => say(e.message, true));
$('request').onsubmit = (e) => { e.preventDefault(); request(e.target); };
$('auth').onsubmit = (e) => {
  e.preventDefault();
  if ($('token').value) sessionStorage.setItem('token', $('token').value);
  else sessionStorage.removeItem('token');
  load();
};

function restore() {
  const p = new URLSearchParams(location.hash.slice(1));
  if (p.get('from')) $('from').value = p.get('from');
  if (p.get('until')) $('until').value = p.get('until');
  if (p.get('service')) showGraph(p.get('service'), p.get('view'));
}
load().then(restore);
