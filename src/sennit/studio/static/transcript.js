// One branch as it is read and as it grows: messages by position, loaded page by page, and what is being
// said right now. Events are applied in order, each once; what they tell and what the server stores
// are the same messages, so reloading in mid-answer shows the same as having stayed.
import { get, path, post, query } from './api.js';
import { follow } from './events.js';

const PAGE = 60;

export class Transcript {
  total = 0;
  loaded = false;
  running = false;
  linked = true;
  interrupted = false;         // the last run was cut off and can be resumed
  error = null;
  notices = [];
  waiting = new Map();          // call id → the call that a person must allow
  started = new Set();          // call ids whose tool is at work
  #messages = new Map();        // position → message
  #places = new Map();          // message id → position
  #drafts = new Map();          // message id → {id, text, reasoning} that is still being said
  #asked = new Set();           // pages under way
  #watchers = new Set();
  #life = new AbortController();
  #frame = 0;

  constructor(session, branch) {
    this.session = session;
    this.branch = branch;
  }

  /** Call `watcher` after changes, at most once a frame. */
  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  close() {
    this.#life.abort();
    cancelAnimationFrame(this.#frame);
  }

  get length() { return this.total + this.#drafts.size; }

  /** What stands at a position: a message, a draft, or undefined while it is loaded. */
  at(index) {
    return index < this.total ? this.#messages.get(index) : [...this.#drafts.values()][index - this.total];
  }

  /** The position of a message that was loaded, or -1. */
  indexOf(id) { return this.#places.get(id) ?? -1; }

  /** Where a message stands, {branch_id, index}: on this branch if it does. */
  async find(id) {
    if (this.indexOf(id) >= 0) return { branch_id: this.branch, index: this.indexOf(id) };
    return get(path('sessions', this.session, 'messages', id) + query({ branch: this.branch }));
  }

  /** The message at a position, loaded if need be. */
  async message(index) {
    if (!this.#messages.has(index)) await this.#load(Math.floor(index / PAGE));
    return this.#messages.get(index);
  }

  url(...parts) { return path('sessions', this.session, 'branches', this.branch, ...parts); }

  /** Load the end of the branch, and go on with the answer that is under way, if one is. */
  async load() {
    try {
      // The branch first: what it says is under way or waits stands in the messages by then.
      const branch = await this.#branch();
      this.#take(await get(this.url('messages') + query({ limit: PAGE }), { signal: this.#life.signal }));
      this.loaded = true;
      this.interrupted = branch.interrupted;
      if (branch.waiting) await this.#loadWaiting();
      if (branch.running) this.#follow(await this.#beginning());
    } catch (error) {
      if (error.name === 'AbortError') return;
      this.error = error;
    }
    this.#changed();
  }

  /** Load what is missing between two positions. */
  ensure(from, to) {
    for (let page = Math.max(0, Math.floor(from / PAGE)); page * PAGE < Math.min(to, this.total); page += 1) {
      if (this.#asked.has(page) || this.#has(page)) continue;
      this.#asked.add(page);
      this.#load(page).finally(() => this.#asked.delete(page));
    }
  }

  async #load(page) {
    try {
      const asked = query({ after: page * PAGE - 1, limit: PAGE });
      this.#take(await get(this.url('messages') + asked, { signal: this.#life.signal }));
      this.#changed();
    } catch (error) {
      if (error.name !== 'AbortError') this.#fail(error);
    }
  }

  #has(page) {
    for (let index = page * PAGE; index < Math.min((page + 1) * PAGE, this.total); index += 1) {
      if (!this.#messages.has(index)) return false;
    }
    return true;
  }

  #take({ messages, total }) {
    this.total = total;
    for (const message of messages) this.#put(message.index, message);
  }

  #put(index, message) {
    this.#messages.set(index, message);
    this.#places.set(message.id, index);
  }

  #branch() { return get(this.url(), { signal: this.#life.signal }); }

  // What was said so far of the answer under way stands in its run's events, so they are read from the first.
  async #beginning() {
    const { runs } = await get(this.url('runs') + query({ limit: 1 }), { signal: this.#life.signal });
    return runs[0].after;
  }

  async #loadWaiting() {
    const { waiting } = await get(this.url('waiting'), { signal: this.#life.signal });
    this.waiting = new Map(waiting.map((call) => [callId(call), call]));
  }

  /** Ask the model; with a text, that is said first. */
  async run(asked) {
    const { after } = await post(this.url('runs'), asked);
    await this.refresh();
    this.#follow(after);
  }

  stop() { return post(this.url('cancel'), { mode: 'now' }); }

  async resume() {
    const { after } = await post(this.url('resume'));
    this.#follow(after);
  }

  async decide(call, approve, message) {
    const { run } = await post(this.url('approvals', callId(call)), { approve, message: message || undefined });
    this.waiting.delete(callId(call));
    this.#changed();
    if (run) this.#follow(run.after);
  }

  /** Look again at the end of the branch. */
  async refresh() {
    this.#take(await get(this.url('messages') + query({ limit: PAGE }), { signal: this.#life.signal }));
    this.#changed();
  }

  async #follow(after) {
    if (this.running) return;
    this.running = true;
    this.interrupted = false;
    this.notices = [];
    this.#changed();
    try {
      await follow(this.url('events') + query({ after }), {
        after, signal: this.#life.signal,
        onEvent: (event) => this.#apply(event),
        onLink: (linked) => { this.linked = linked; this.#changed(); },
        underWay: async () => (await this.#branch()).running,
      });
    } catch (error) {
      this.#fail(error);
    }
    if (this.#life.signal.aborted) return;
    await this.refresh().catch((error) => this.#fail(error));
    this.running = false;
    this.#drafts.clear();
    this.started.clear();
    this.onEnd?.();
    this.#changed();
  }

  #apply({ kind, data }) {
    const { message } = data;
    if (kind === 'text' || kind === 'think') this.#say(kind === 'text' ? 'text' : 'reasoning', data);
    else if (kind === 'drop') this.#drafts.delete(data.message_id);
    else if (kind === 'replaced') this.#reload();
    else if (kind === 'run') this.started.add(callId(message));
    else if (kind === 'ask') this.waiting.set(callId(message), message);
    else if (kind === 'decided') this.waiting.delete(callId(message));
    else if (kind === 'start') this.notices = [];
    else if (kind === 'warn') this.notices.push(data.notice);
    else if (kind === 'end') this.notices.push(...data.result.notices);
    else if (message) this.#stand(message);
    this.#changed();
  }

  #say(field, { message_id: id, text }) {
    if (this.indexOf(id) >= 0) return;
    const draft = this.#drafts.get(id) ?? { id, kind: 'answer', role: 'assistant', draft: true, text: '', reasoning: '' };
    this.#drafts.set(id, { ...draft, [field]: draft[field] + text });
  }

  #stand(message) {
    this.#drafts.delete(message.id);
    if (message.result) this.started.delete(message.result.request_id);
    const known = this.indexOf(message.id);
    const index = known >= 0 ? known : message.index ?? this.total;
    this.#put(index, { ...message, index });
    this.total = Math.max(this.total, index + 1);
  }

  #reload() {
    this.#messages.clear();
    this.#places.clear();
    this.#drafts.clear();
    this.refresh().catch((error) => this.#fail(error));
  }

  #fail(error) {
    this.notices.push({ severity: 'error', text: error.message });
    this.#changed();
  }

  #changed() {
    if (this.#frame || this.#life.signal.aborted) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#watchers.forEach((watcher) => watcher());
    });
  }
}

const callId = (message) => message.call?.call_id ?? message.call_id;
