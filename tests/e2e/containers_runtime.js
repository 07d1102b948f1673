// containers_runtime.js MODE SOCKET DIR - a container runtime that does what containers.sh wants of it. It writes
// one line for each request to DIR/asked, and DIR/ready when it listens.
//	cri	answers ListPodSandbox and ListContainers of runtime.v1 with DIR/METHOD.grpc
//	old	the same of runtime.v1alpha2; v1 is UNIMPLEMENTED
//	docker	answers GET /containers/json with DIR/docker.json
//	hang	accepts, and says nothing
//	garbage	sends bytes that are no protocol
//	huge	announces a message of 1 GB and sends without end
//	lie	a message that says it is longer than it is
'use strict';
const fs = require('fs'), http = require('http'), http2 = require('http2'), net = require('net');
const [mode, socket, dir] = process.argv.slice(2);
const note = (text) => fs.appendFileSync(dir + '/asked', text + '\n');
let server;

function grpc(version) {
	server = http2.createServer();
	server.on('stream', (stream, headers) => {
		const [, service, method] = headers[':path'].split('/');
		note(headers[':path']);
		stream.on('error', () => {});
		if (version && service !== 'runtime.' + version + '.RuntimeService') {
			stream.respond({':status': 200, 'content-type': 'application/grpc', 'grpc-status': '12'}, {endStream: true});
			return;
		}
		stream.respond({':status': 200, 'content-type': 'application/grpc'}, {waitForTrailers: true});
		stream.on('wantTrailers', () => stream.sendTrailers({'grpc-status': '0'}));
		if (mode === 'huge') {
			const more = Buffer.alloc(1 << 20, 10);
			stream.write(Buffer.from([0, 0x40, 0, 0, 0]));
			const go = () => { while (!stream.destroyed && stream.write(more)); };
			stream.on('drain', go);
			go();
		} else if (mode === 'lie') {
			stream.end(Buffer.from([0, 0, 0, 1, 0, 10, 255, 255, 255, 255, 15]));
		} else {
			stream.end(fs.readFileSync(dir + '/' + method + '.grpc'));
		}
	});
}

if (mode === 'cri') grpc('v1');
else if (mode === 'old') grpc('v1alpha2');
else if (mode === 'huge' || mode === 'lie') grpc('');
else if (mode === 'docker')
	server = http.createServer((request, answer) => {
		note(request.method + ' ' + request.url);
		answer.writeHead(request.url === '/containers/json' ? 200 : 404, {'content-type': 'application/json'});
		answer.end(fs.readFileSync(dir + '/docker.json'));
	});
else
	server = net.createServer((peer) => {
		note(mode);
		peer.on('error', () => {});
		if (mode === 'garbage') peer.end(Buffer.alloc(65536, 0xa5));
	});
server.listen(socket, () => fs.writeFileSync(dir + '/ready', ''));
