// A client that knows the document of the protocol and nothing else: a REQ, a SUB, and six JSON messages.
//
//     node client.mjs --control tcp://127.0.0.1:5556 --count 100
//
// Reads until the gateway says that it is over, and prints what it saw as one line of JSON.

import { createHash } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Request, Subscriber } from "zeromq";

const { values: options } = parseArgs({
  options: {
    control: { type: "string" },
    // How many records to ask for at a time.
    count: { type: "string", default: "1000" },
    // Ask for as many as OnSubscribe has on offer. 2^63-1 is no number of JavaScript's: it goes back rounded.
    "whole-size": { type: "boolean", default: false },
    // Milliseconds of work for each batch.
    "pause-ms": { type: "string", default: "0" },
    // Cancel after so many batches.
    "cancel-after": { type: "string", default: "Infinity" },
  },
});

const PATIENCE = 20_000; // Milliseconds; only a client that fails waits for so long.
const FIELDS = { OnSubscribe: "jsonClass,size,port", OnNext: "jsonClass,count" };

const control = new Request({ receiveTimeout: PATIENCE, sendTimeout: PATIENCE, linger: 0 });
const data = new Subscriber({ receiveTimeout: PATIENCE, linger: 0 });

async function ask(message) {
  const request = JSON.stringify(message);
  await control.send(request);
  const [reply, ...rest] = await control.receive();
  if (rest.length) throw new Error(`an answer of ${rest.length + 1} parts`);
  const answer = JSON.parse(reply);
  const known = FIELDS[answer.jsonClass];
  if (known && Object.keys(answer).join() !== known) throw new Error(`not in the document: ${reply}`);
  return { request, answer };
}

async function records(count, hash) {
  for (let received = 0; received < count; received++) {
    const [record, ...rest] = await data.receive();
    if (rest.length) throw new Error(`a record of ${rest.length + 1} parts`);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(record.length);
    hash.update(length).update(record);
  }
}

async function undeclared() {
  data.receiveTimeout = 0;
  let count = 0;
  try {
    for (;;) {
      await data.receive();
      count++;
    }
  } catch (error) {
    if (error.code !== "EAGAIN") throw error;
    return count;
  }
}

control.connect(options.control);
const { answer: welcome } = await ask({ jsonClass: "Subscribe", cancel: false });
if (welcome.jsonClass !== "OnSubscribe") throw new Error(JSON.stringify(welcome));
data.subscribe();
data.connect(options.control.replace(/:\d+$/, `:${welcome.port}`));

const wanted = options["whole-size"] ? welcome.size : Number(options.count);
const hash = createHash("sha256");
const seen = { records: 0, batches: 0, empty: 0, largest: 0, asked: null, end: null };
while (seen.end === null) {
  if (seen.batches >= Number(options["cancel-after"])) {
    seen.end = (await ask({ jsonClass: "Subscribe", cancel: true })).answer;
    break;
  }
  const { request, answer } = await ask({ jsonClass: "Next", count: wanted });
  seen.asked = request;
  if (answer.jsonClass !== "OnNext") {
    seen.end = answer;
  } else if (answer.count === 0) {
    seen.empty++;
  } else {
    if (answer.count > wanted) throw new Error(`asked for ${wanted}, and got ${answer.count}`);
    await records(answer.count, hash);
    seen.records += answer.count;
    seen.batches++;
    seen.largest = Math.max(seen.largest, answer.count);
    await pause(Number(options["pause-ms"]));
  }
}
seen.undeclared = await undeclared();
seen.sha256 = hash.digest("hex");
console.log(JSON.stringify(seen));
control.close();
data.close();
