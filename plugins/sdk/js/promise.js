// Promises whose continuations run when `finish` says so. The engine's own run only when its host asks
// for it, which does not happen inside a plugin's call: an `async` handler would never go on after its
// first `await`. The bundler turns `async` functions into code that uses the global `Promise`, this one.

let jobs = [];
/** Rejected promises that nobody has looked at, with their reasons. */
const unhandled = new Map();

class LocalPromise {
  #state = "pending";
  #value;
  #reactions = [];
  #handled = false;

  constructor(executor) {
    if (typeof executor !== "function") throw new TypeError("Promise takes a function");
    const { resolve, reject } = this.#resolvers();
    try {
      executor(resolve, reject);
    } catch (error) {
      reject(error);
    }
  }

  /** The two functions that decide the promise; the first call of either counts. */
  #resolvers() {
    let decided = false;
    const once = (decide) => (value) => {
      if (decided) return;
      decided = true;
      decide(value);
    };
    return {
      resolve: once((value) => this.#resolve(value)),
      reject: once((reason) => this.#settle("rejected", reason)),
    };
  }

  #resolve(value) {
    if (value === this) return this.#settle("rejected", new TypeError("a promise cannot wait for itself"));
    if ((typeof value !== "object" || value === null) && typeof value !== "function") {
      return this.#settle("fulfilled", value);
    }
    let then;
    try {
      then = value.then;
    } catch (error) {
      return this.#settle("rejected", error);
    }
    if (typeof then !== "function") return this.#settle("fulfilled", value);
    jobs.push(() => {
      const { resolve, reject } = this.#resolvers();
      try {
        then.call(value, resolve, reject);
      } catch (error) {
        reject(error);
      }
    });
  }

  #settle(state, value) {
    this.#state = state;
    this.#value = value;
    if (state === "rejected" && !this.#handled) unhandled.set(this, value);
    for (const react of this.#reactions) jobs.push(react);
    this.#reactions = [];
  }

  then(onFulfilled, onRejected) {
    const Constructor = this.constructor?.[Symbol.species] ?? LocalPromise;
    return new Constructor((resolve, reject) => {
      const react = () => {
        const fulfilled = this.#state === "fulfilled";
        const callback = fulfilled ? onFulfilled : onRejected;
        try {
          if (typeof callback === "function") resolve(callback(this.#value));
          else if (fulfilled) resolve(this.#value);
          else reject(this.#value);
        } catch (error) {
          reject(error);
        }
      };
      this.#handled = true;
      unhandled.delete(this);
      if (this.#state === "pending") this.#reactions.push(react);
      else jobs.push(react);
    });
  }

  catch(onRejected) {
    return this.then(undefined, onRejected);
  }

  finally(callback) {
    if (typeof callback !== "function") return this.then(callback, callback);
    const Constructor = this.constructor;
    return this.then(
      (value) => Constructor.resolve(callback()).then(() => value),
      (reason) => Constructor.resolve(callback()).then(() => Constructor.reject(reason)),
    );
  }

  static get [Symbol.species]() {
    return this;
  }

  static resolve(value) {
    return value instanceof LocalPromise && value.constructor === this ? value : new this((resolve) => resolve(value));
  }

  static reject(reason) {
    return new this((_, reject) => reject(reason));
  }

  static withResolvers() {
    let functions;
    const promise = new this((resolve, reject) => (functions = { resolve, reject }));
    return { promise, ...functions };
  }

  static try(callback, ...values) {
    return new this((resolve) => resolve(callback(...values)));
  }

  static all(values) {
    return collect(this, values, (value) => value);
  }

  static allSettled(values) {
    return collect(
      this,
      values,
      (value) => ({ status: "fulfilled", value }),
      (reason) => ({ status: "rejected", reason }),
    );
  }

  static any(values) {
    const reasons = collect(this, Array.from(values, (value) => swap(this.resolve(value))), (reason) => reason);
    return swap(reasons).catch((errors) => {
      throw new AggregateError(errors, "all promises were rejected");
    });
  }

  static race(values) {
    return new this((resolve, reject) => {
      for (const value of values) this.resolve(value).then(resolve, reject);
    });
  }
}

/** The results of all, in order; the first rejection without `onRejected`. */
function collect(Constructor, values, onFulfilled, onRejected) {
  return new Constructor((resolve, reject) => {
    const promises = Array.from(values, (value) => Constructor.resolve(value));
    const results = [];
    let missing = promises.length;
    if (missing === 0) resolve(results);
    promises.forEach((promise, n) => {
      const take = (convert) => (value) => {
        results[n] = convert(value);
        missing -= 1;
        if (missing === 0) resolve(results);
      };
      promise.then(take(onFulfilled), onRejected ? take(onRejected) : reject);
    });
  });
}

/** Fulfilled where the other is rejected, and the other way round. */
function swap(promise) {
  const Constructor = promise.constructor;
  return new Constructor((resolve, reject) => promise.then(reject, resolve));
}

Object.defineProperty(LocalPromise, "name", { value: "Promise" });
Object.defineProperty(LocalPromise.prototype, Symbol.toStringTag, { value: "Promise" });
export { LocalPromise as Promise };

export function queueMicrotask(job) {
  jobs.push(job);
}

/** Runs what waits to be run until nothing is left, and then gives `value`, or what it promises. */
export function finish(value) {
  let outcome = typeof value?.then === "function" ? undefined : { value };
  try {
    if (outcome === undefined) {
      LocalPromise.resolve(value).then(
        (fulfilled) => (outcome = { value: fulfilled }),
        (error) => (outcome = { error }),
      );
    }
    while (jobs.length > 0) {
      const batch = jobs;
      jobs = [];
      for (const job of batch) job();
    }
    if (outcome === undefined) {
      throw new Error("the handler waits for something that never comes: a plugin has no timers and no network");
    }
    if ("error" in outcome) throw outcome.error;
    for (const reason of unhandled.values()) throw reason;
    return outcome.value;
  } finally {
    jobs = [];
    unhandled.clear();
  }
}
