// Runs inside the flame graph of svg_script.sh, does what a user does, and leaves "NAME=VALUE" lines in a
// <desc> for the script outside to judge.
(function () {
const root = document.documentElement;
const one = (q) => root.querySelector(q);
const frames = Array.from(root.querySelectorAll('g.f'));
const title = (g) => g.querySelector('title').textContent.split('\n');
const find = (name) => frames.find((g) => title(g)[0] === name);
const width = (name) => find(name).querySelector('rect').getAttribute('width');
const hidden = (name) => find(name).style.display === 'none';
const matched = () => one('.matched').textContent;
const focused = () => (document.activeElement.matches('g.f') ? title(document.activeElement)[0] : document.activeElement.className);
const lines = [];
const tell = (name, value) => lines.push(name + '=' + value);
const type = (q) => { one('.search').value = q; one('.search').dispatchEvent(new Event('input', { bubbles: true })); };
const key = (k, more) => (document.activeElement === document.body || !document.activeElement ? root : document.activeElement)
  .dispatchEvent(new KeyboardEvent('keydown', Object.assign({ key: k, bubbles: true, cancelable: true }, more)));
const click = (g) => g.querySelector('rect').dispatchEvent(new MouseEvent('click', { bubbles: true }));

for (const q of ['hot', 'HOT', '.*', 'constructor', '__proto__', '<svg', 'absent', 'all', '']) {
  type(q);
  tell('search ' + q, matched());
}
type('hot');
click(find('caller_b'));
tell('zoomed matched', matched());
tell('zoomed width', width('caller_b'));
tell('zoomed child', width('hot_20'));
tell('zoomed hides others', hidden('hot_70'));
tell('zoomed fades ancestors', find('main').classList.contains('above') && !find('hot_20').classList.contains('above'));
find('hot_20').dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
tell('details', one('.details').textContent);
key('Escape');
tell('esc clears the search first', matched() === '' && hidden('hot_70'));
key('Escape');
tell('esc resets the zoom next', !hidden('hot_70') && one('.reset').style.display === 'none');
key('f', { ctrlKey: true });
tell('ctrl-f focuses', focused());
key('Escape');
tell('esc leaves the search for', focused());
key('/');
tell('slash focuses', focused());
key('Escape');
key('ArrowUp');
tell('up', focused());
key('ArrowRight');
tell('right', focused());
key('Enter');
tell('enter zooms', width('rest'));
key('ArrowDown');
tell('down', focused());
one('.reset rect').dispatchEvent(new MouseEvent('click', { bubbles: true }));
tell('reset', width('all') + ' ' + hidden('hot_70'));
tell('tab stops', frames.filter((g) => g.getAttribute('tabindex') === '0').length);
tell('hostile name', title(find('<svg onload=alert(1)>'))[0]);
tell('markup from names', root.querySelectorAll('svg,[onload],img').length + root.querySelectorAll('script').length);
tell('requests', performance.getEntriesByType('resource').length);
const desc = document.createElementNS('http://www.w3.org/2000/svg', 'desc');
desc.textContent = '\nPROBE\n' + lines.join('\n') + '\nDONE\n';
root.appendChild(desc);
})();
