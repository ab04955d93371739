// No-op jobs with BullMQ:
//
//   node peer.js enqueue URL EVENTS BYTES
//   node peer.js drain URL EVENTS '{"concurrency": 50, "workers": 1, "processes": 1, "keep": false}'
//
// Each prints one line of JSON, {"seconds": …}. A drain is timed from the start of the workers, which are
// connected by then, until the last job is completed. ../README.md says where the settings come from.

import { fork } from "node:child_process";
import { Queue, Worker } from "bullmq";

const QUEUE = "peer";
const BULK = 100;

/** Fewer messages to the parent than jobs; what is left over is told with a timer. */
const TELL_EVERY = 100;
const TELL_AFTER_MS = 2;

const [command, url, ...rest] = process.argv.slice(2);
const commands = { enqueue, drain, child };
await commands[command](...rest);

async function enqueue(events, bytes) {
  const queue = new Queue(QUEUE, { connection: { url } });
  await queue.waitUntilReady();
  const padding = JSON.stringify({ text: "" }).length;
  const data = { text: "x".repeat(Number(bytes) - padding) };
  const opts = { attempts: 5, backoff: { type: "exponential", delay: 200 } };
  const began = performance.now();
  for (let left = Number(events); left > 0; left -= BULK) {
    const jobs = Array.from({ length: Math.min(BULK, left) }, () => ({ name: "noop", data, opts }));
    await queue.addBulk(jobs);
  }
  print(began);
  await queue.close();
}

async function drain(events, text) {
  const settings = JSON.parse(text);
  const total = Number(events);
  if (settings.processes === 1) {
    const workers = await start(settings);
    const done = new Promise((resolve) => count(workers, (completed) => completed === total && resolve()));
    const began = performance.now();
    run(workers);
    await done;
    print(began);
    await Promise.all(workers.map((worker) => worker.close()));
  } else {
    await inProcesses(settings, total);
  }
}

/** The same in several processes, which is how BullMQ uses several cores. */
async function inProcesses(settings, total) {
  const children = Array.from({ length: settings.processes }, () =>
    fork(process.argv[1], ["child", url, JSON.stringify(settings)]),
  );
  const next = (child) => new Promise((resolve) => child.once("message", resolve));
  await Promise.all(children.map(next));
  const completed = children.map(() => 0);
  const done = new Promise((resolve) => {
    children.forEach((child, index) => {
      child.on("message", (message) => {
        completed[index] = message;
        if (completed.reduce((sum, one) => sum + one) === total) resolve();
      });
    });
  });
  const began = performance.now();
  children.forEach((child) => child.send("go"));
  await done;
  print(began);
  children.forEach((child) => child.disconnect());
}

async function child(text) {
  const workers = await start(JSON.parse(text));
  let told = 0;
  let completed = 0;
  const tell = () => {
    if (completed > told) process.send((told = completed));
  };
  count(workers, (now) => {
    completed = now;
    if (completed >= told + TELL_EVERY) tell();
  });
  const timer = setInterval(tell, TELL_AFTER_MS);
  process.once("disconnect", async () => {
    clearInterval(timer);
    await Promise.all(workers.map((worker) => worker.close()));
  });
  process.once("message", () => run(workers));
  process.send(0);
}

/** Connected workers that do not take anything yet. */
async function start(settings) {
  const options = {
    connection: { url },
    autorun: false,
    concurrency: settings.concurrency,
    ...(settings.keep ? {} : { removeOnComplete: { count: 0 } }),
  };
  const workers = Array.from({ length: settings.workers }, () => new Worker(QUEUE, async () => {}, options));
  workers.forEach((worker) => worker.on("error", fail).on("failed", (_job, error) => fail(error)));
  await Promise.all(workers.map((worker) => worker.waitUntilReady()));
  return workers;
}

function run(workers) {
  workers.forEach((worker) => worker.run().catch(fail));
}

/** Tells how many jobs are completed, whenever one more is. */
function count(workers, tell) {
  let completed = 0;
  workers.forEach((worker) => worker.on("completed", () => tell(++completed)));
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

function print(began) {
  console.log(JSON.stringify({ seconds: (performance.now() - began) / 1000 }));
}
