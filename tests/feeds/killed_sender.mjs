// Sends numbers by POST or over a WebSocket, and again what was not acknowledged. A file remembers over a kill
// how many are safe: node --experimental-websocket killed_sender.mjs URL TOTAL STATE
import fs from 'node:fs';

const [url, given, state] = process.argv.slice(2);
const TOTAL = Number(given);
const BATCH = 10;
const BUFFERED = 65536;
const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

let safe = fs.existsSync(state) ? Number(fs.readFileSync(state)) : 0;
function note(count) {
  safe = count;
  fs.writeFileSync(`${state}.new`, String(count));
  fs.renameSync(`${state}.new`, state);
}

async function post() {
  while (safe < TOTAL) {
    const end = Math.min(safe + BATCH, TOTAL);
    const body = Array.from({length: end - safe}, (_, n) => `${safe + n}\n`).join('');
    const headers = {'content-type': 'text/plain', 'idempotency-key': `from ${safe}`};
    try {
      const answer = await fetch(url, {method: 'POST', headers, body, signal: AbortSignal.timeout(20000)});
      await answer.arrayBuffer();
      if (answer.status === 200) {
        note(end);
        continue;
      }
    } catch {
      // The proxy or the gateway was killed: the same again, with the same key.
    }
    await pause(0.05);
  }
}

function converse() {
  const first = safe;
  return new Promise((over) => {
    const socket = new WebSocket(url);
    socket.onopen = async () => {
      for (let n = first; n < TOTAL && socket.readyState === WebSocket.OPEN; await pause(0)) {
        while (n < TOTAL && socket.bufferedAmount < BUFFERED) socket.send(String(n++));
      }
    };
    socket.onmessage = (message) => {
      note(first + Number(message.data));
      if (safe >= TOTAL) socket.close();
    };
    // If nobody listens, there is an error, and in this version of Node no close after it.
    socket.onclose = socket.onerror = over;
  });
}

if (url.startsWith('ws')) {
  while (safe < TOTAL) {
    await converse();
    await pause(0.05);
  }
} else {
  await post();
}
