// Sends records as fast as it is let, by POST or over a WebSocket, and counts in a file those it got rid of.
// node --experimental-websocket fast_sender.mjs URL COUNTER
import fs from 'node:fs';

const [url, path] = process.argv.slice(2);
const SIZE = 3999;
const BATCH = 250;
const BUFFERED = 262144;
const padding = 'x'.repeat(SIZE - 9);
const record = (number) => String(number).padStart(9, '0') + padding;
const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

const file = fs.openSync(path, 'r+');
const eight = Buffer.alloc(8);
function count(sent) {
  eight.writeBigUInt64LE(BigInt(sent));
  fs.writeSync(file, eight, 0, 8, 0);
}

async function post() {
  let sent = 0;
  for (;;) {
    const body = Array.from({length: BATCH}, (_, n) => record(sent + n) + '\n').join('');
    const headers = {'content-type': 'text/plain', 'idempotency-key': `from ${sent}`};
    const answer = await fetch(url, {method: 'POST', headers, body});
    await answer.arrayBuffer();
    if (answer.status === 200) {
      sent += BATCH;
      count(sent);
    } else if (answer.status === 429) {
      await pause(Number(answer.headers.get('retry-after')));
    } else {
      throw new Error(`status ${answer.status}`);
    }
  }
}

async function converse() {
  const socket = new WebSocket(url);
  await new Promise((open, failed) => {
    socket.onopen = open;
    socket.onerror = failed;
  });
  socket.onclose = () => process.exit(1);
  let sent = 0;
  for (;;) {
    while (socket.bufferedAmount < BUFFERED) socket.send(record(sent++));
    count(sent - Math.floor(socket.bufferedAmount / SIZE));
    await pause(0);
  }
}

await (url.startsWith('ws') ? converse() : post());
