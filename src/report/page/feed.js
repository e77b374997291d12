// Runs and their metrics, as the server tells them and goes on telling.

const COLORS = [0, 1, 2, 3, 4, 5, 6, 7];
const RETRY_MS = 2000;

export async function ask(path, words = {}) {
  const reply = await fetch(`${path}?${new URLSearchParams(words)}`);
  const body = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(body.error?.message || `${path}: status ${reply.status}`);
  return body;
}

/** Adds a value at its step; rows come in order but for a few. */
function put(series, step, value) {
  const { steps, values } = series;
  let at = steps.length;
  while (at > 0 && steps[at - 1] >= step) --at;
  if (steps[at] === step) { values[at] = value; return; }
  steps.splice(at, 0, step);
  values.splice(at, 0, value);
}

/** A run that is shown: its series, and how steps become x. */
export class FollowedRun {
  constructor(id, color) {
    this.id = id;
    this.label = id;
    this.color = color;
    this.position = null;
    this.metrics = {};
    this.times = { steps: [], values: [] };
    this.num_steps = 0;
    this.version = 0;  // grows with each change
  }

  async load() {
    const body = await ask("/api/metrics", { run: this.id });
    this.metrics = body.metrics;
    this.times = body.times;
    this.num_steps = body.num_steps;
    this.position = body.position;
    ++this.version;
  }

  add(rows) {
    for (const row of rows) {
      this.num_steps = Math.max(this.num_steps, row.step + 1);
      for (const [name, value] of Object.entries(row)) {
        if (name === "step") continue;
        if (name === "time") put(this.times, row.step, value);
        else put(this.metrics[name] ??= { steps: [], values: [] }, row.step, value);
      }
    }
    ++this.version;
  }

  /** Seconds since the run's first row, of each step. */
  seconds(steps) {
    const { steps: known, values } = this.times;
    if (!known.length) return steps;
    let at = 0;
    return steps.map((step) => {
      while (at + 1 < known.length && known[at + 1] <= step) ++at;
      return values[at] - values[0];
    });
  }
}

/** All runs, those that are followed, and the stream that they grow by. */
export class Feed {
  constructor() {
    this.list = [];
    this.followed = new Map();
    this.stream = null;
    this.is_connected = true;
  }

  tell(what) { document.dispatchEvent(new CustomEvent(what)); }

  async start() {
    // Browsers open six connections to a server: a page that nobody sees has none.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.stream?.close();
      else this.connect();
    });
    this.list = await ask("/api/runs");
    this.tell("runschange");
  }

  /** Follows these runs and no others. */
  async follow(ids) {
    const wanted = ids.filter((id) => this.list.some((run) => run.id === id));
    const has_changed = wanted.length !== this.followed.size || wanted.some((id) => !this.followed.has(id));
    if (!has_changed) return;
    const old = this.followed;
    this.followed = new Map();
    const taken = new Set(wanted.filter((id) => old.has(id)).map((id) => old.get(id).color));
    for (const id of wanted) {
      if (old.has(id)) { this.followed.set(id, old.get(id)); continue; }
      const color = COLORS.find((one) => !taken.has(one)) ?? this.followed.size % COLORS.length;
      taken.add(color);
      this.followed.set(id, new FollowedRun(id, color));
    }
    await Promise.all([...this.followed.values()].filter((run) => run.position === null).map((run) => run.load()));
    this.tell("metricschange");
    this.connect();
  }

  connect() {
    this.stream?.close();
    clearTimeout(this.retry);
    const after = [...this.followed.values()].filter((run) => run.position !== null).map((run) => `${run.id}:${run.position}`).join(",");
    const stream = this.stream = new EventSource(`/api/events?${new URLSearchParams({ after })}`);
    stream.onopen = () => this.set_connected(true);
    stream.addEventListener("rows", (event) => {
      const { run, position, rows } = JSON.parse(event.data);
      const followed = this.followed.get(run);
      if (!followed || this.stream !== stream) return;
      followed.add(rows);
      followed.position = position;
      this.tell("metricschange");
    });
    stream.addEventListener("reset", async (event) => {
      const followed = this.followed.get(JSON.parse(event.data).run);
      if (!followed || this.stream !== stream) return;
      await followed.load().catch(() => {});
      this.tell("metricschange");
      this.connect();
    });
    stream.addEventListener("runs", (event) => {
      this.list = JSON.parse(event.data);
      this.tell("runschange");
    });
    stream.onerror = () => {
      if (this.stream !== stream) return;
      stream.close();
      this.set_connected(false);
      this.retry = setTimeout(() => this.connect(), RETRY_MS);
    };
  }

  set_connected(is_connected) {
    if (this.is_connected === is_connected) return;
    this.is_connected = is_connected;
    this.tell("connectionchange");
  }
}
