// One branch as it is read and as it grows: messages by position, loaded page by page, and what is being
// said right now. Events are applied in order, each once; what they tell and what the server stores
// are the same messages, so reloading in mid-answer shows the same as having stayed.
import { del, get, path, post, query } from './api.js';
import { follow } from './events.js';

const PAGE = 60;

export class Transcript {
  total = 0;
  loaded = false;
  running = false;
  linked = true;
  interrupted = false;         // the last run was cut off and can be resumed
  error = null;                 // why nothing could be loaded
  notices = [];
  waiting = new Map();          // call id → the call that a person must allow
  started = new Set();          // call ids whose tool is at work
  tools = new Map();            // call id → the tool that was called
  scores = new Map();           // message id → what a person thought of it
  #messages = new Map();        // position → message
  #places = new Map();          // message id → position
  #drafts = new Map();          // message id → {id, text, reasoning} that is still being said
  #steered = new Map();         // message id → what was said to the run, which it has not taken in yet
  #asked = new Set();           // pages under way
  #era = 0;                     // grows when positions change: what was asked for before is void
  #loads = 0;                   // how often all was loaded: only the last one counts
  #deeds = 0;                   // grows when something is decided, judged or over
  #looks = 0;                   // how often the end was looked at
  #shown = 0;                   // which of these looks is shown
  #last = 0;                    // the number of the last event applied
  #upcoming = null;             // from where to follow next
  #unsure = null;               // {text, id} of what may have been said when the connection broke
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

  get closed() { return this.#life.signal.aborted; }

  close() {
    this.#life.abort();
    cancelAnimationFrame(this.#frame);
  }

  get length() { return this.total + this.#drafts.size + this.#steered.size; }

  /** What stands at a position: a message, a draft, or undefined while it is loaded. */
  at(index) {
    return index < this.total ? this.#messages.get(index) : [...this.#drafts.values(), ...this.#steered.values()][index - this.total];
  }

  /** The position of a message that was loaded, or -1. */
  indexOf(id) { return this.#places.get(id) ?? -1; }

  /** Whether something was said last that nobody has answered. */
  get unanswered() {
    return this.loaded && !this.running && !this.interrupted && !this.waiting.size && ['instruction', 'result'].includes(this.at(this.total - 1)?.kind);
  }

  /** Where a message stands, {branch_id, index}: on this branch if it does. */
  async find(id) {
    if (this.indexOf(id) >= 0) return { branch_id: this.branch, index: this.indexOf(id) };
    return this.#get(path('sessions', this.session, 'messages', id) + query({ branch: this.branch }));
  }

  /** The message at a position, loaded if need be. */
  async message(index) {
    if (!this.#messages.has(index)) await this.#load(Math.floor(index / PAGE));
    return this.#messages.get(index);
  }

  url(...parts) { return path('sessions', this.session, 'branches', this.branch, ...parts); }

  #get(address) { return get(address, { signal: this.#life.signal }); }

  /**
   * Load the end of the branch, and go on with the answer that is under way, if one is. All of it is shown
   * at once: who sees a message can act on it. What was read before a decision is void, and read again.
   */
  async load() {
    this.error = null;
    const mine = this.#loads += 1;
    const deeds = this.#deeds;
    try {
      // The branch first: what it says is under way or waits stands in the messages by then.
      const branch = await this.#get(this.url());
      const [newest, calls, scores, after] = await Promise.all([
        this.#newest(), branch.waiting ? this.#waiting() : [], this.#judged(), branch.running ? this.#beginning() : null,
      ]);
      if (mine !== this.#loads) return;
      if (deeds !== this.#deeds) { await this.load(); return; }
      this.#renew(newest);
      Object.assign(this, { scores, interrupted: branch.interrupted, loaded: true });
      this.waiting = new Map(calls.map((call) => [callId(call), call]));
      if (after !== null) this.#follow(after);
    } catch (error) {
      if (error.name === 'AbortError' || mine !== this.#loads) return;
      if (this.loaded) this.#fail(error);
      else this.error = error;
    }
    this.#changed();
  }

  async #waiting() { return (await this.#get(this.url('waiting'))).waiting; }

  // What was said so far of the answer under way stands in its run's events, so they are read from the first.
  async #beginning() {
    const { runs } = await this.#get(this.url('runs') + query({ limit: 1 }));
    return runs[0].after;
  }

  async #judged() {
    const { labels } = await this.#get(path('sessions', this.session, 'labels') + query({ by: 'user' }));
    return new Map(labels.map(({ message, score }) => [message, score]));
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
    const era = this.#era;
    try {
      const told = await this.#get(this.url('messages') + query({ after: page * PAGE - 1, limit: PAGE }));
      if (era === this.#era) this.#take(told);
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

  // A branch grows: an answer that was overtaken on its way takes nothing back.
  #take({ messages, total }) {
    this.total = Math.max(this.total, total);
    for (const message of messages) this.#put(message.index, message);
  }

  #put(index, message) {
    this.#drafts.delete(message.id);
    this.#steered.delete(message.id);
    this.#messages.set(index, message);
    if (message.call) this.tools.set(callId(message), message.call.function);
    this.#places.set(message.id, index);
  }

  /** Look again at the end of the branch. If it was rewritten, all that was known of it is forgotten. */
  async refresh({ rewritten = false } = {}) {
    this.#renew(await this.#newest(rewritten));
  }

  async #newest(rewritten = false) {
    const asked = { rewritten, era: this.#era += rewritten, look: this.#looks += 1 };
    return { ...asked, told: await this.#get(this.url('messages') + query({ limit: PAGE })) };
  }

  // A look that a later one has overtaken shows nothing any more.
  #renew({ told, rewritten, era, look }) {
    if (era !== this.#era || look < this.#shown) return;
    this.#shown = look;
    const moved = ({ index, id }) => this.#messages.has(index) && this.#messages.get(index).id !== id;
    if (rewritten || (!this.running && told.total < this.total) || told.messages.some(moved)) this.#forget();
    this.#take(told);
    this.#changed();
  }

  #forget() {
    this.#era += 1;
    this.total = 0;
    this.#messages.clear();
    this.#places.clear();
  }

  /** Ask the model; with a text, that is said first. */
  async run(asked) {
    const said = asked.text === undefined ? {} : this.#unsure?.text === asked.text ? this.#unsure : { text: asked.text, id: newId() };
    try {
      const { after } = await this.#do('runs', { ...asked, ...said });
      this.#follow(after);
    } catch (error) {
      this.#unsure = error.status === 0 && said.id ? said : null;
      if (error.code !== 'exists') throw error;  // what we said has arrived after all
    }
  }

  // What is refused was asked for with an old picture in mind: somebody else was here. Look again.
  async #do(deed, asked) {
    try {
      return await post(this.url(...[deed].flat()), asked);
    } catch (error) {
      if (error.status >= 400 && error.status < 500) await this.load();
      throw error;
    }
  }

  /** Say something to the run under way, which takes it in before it asks the model again. */
  async steer(text, asked) {
    const { running } = await this.#do('steer', { text });
    if (running) return;
    await this.refresh();  // it had just ended: what was said stands on the branch
    await this.run(asked);
  }

  stop() { return this.#do('cancel', { mode: 'now' }); }

  async resume() {
    const { after } = await this.#do('resume');
    this.#follow(after);
  }

  async decide(call, approve, message) {
    const { run } = await this.#do(['approvals', callId(call)], { approve, message: message || undefined });
    this.#wait(call, false);
    this.#changed();
    if (run) this.#follow(run.after);
  }

  /** Judge an answer: "up" or "down", or the same again to take it back. */
  async judge({ id }, thumb) {
    const score = thumb === 'up' ? 1 : 0;
    const address = this.url('messages', id, 'label');
    if (this.scores.get(id) === score) {
      await del(address);
      this.scores.delete(id);
    } else {
      await post(address, { thumb });
      this.scores.set(id, score);
    }
    this.#deeds += 1;
    this.#changed();
  }

  // One stream at a time: what begins while the last one comes to its end is followed after it.
  async #follow(after) {
    this.#upcoming = after;
    if (this.running) return;
    this.running = true;
    this.#begin();
    this.#changed();
    while (this.#upcoming !== null) {
      const from = Math.max(this.#upcoming, this.#last);
      this.#upcoming = null;
      await this.#stream(from).catch((error) => this.#fail(error));
      if (this.closed) return;
      await this.refresh().catch((error) => this.#fail(error));  // events do not tell other versions
    }
    this.running = false;
    this.linked = true;
    this.#drafts.clear();
    this.#steered.clear();
    this.started.clear();
    this.onEnd?.();
    this.#changed();
  }

  #stream(after) {
    return follow(this.url('events') + query({ after }), {
      after, signal: this.#life.signal,
      onEvent: (event) => this.#apply(event),
      onLink: (linked) => { this.linked = linked; this.#changed(); },
      underWay: () => this.#underWay(),
    });
  }

  async #underWay() {
    const branch = await this.#get(this.url());
    this.interrupted = branch.interrupted;
    return branch.running;
  }

  async #apply({ seq, kind, data }) {
    const { message } = data;
    this.#last = seq;
    if (kind === 'text' || kind === 'think') this.#say(kind === 'text' ? 'text' : 'reasoning', data);
    else if (kind === 'drop') this.#drafts.delete(data.message_id);
    else if (kind === 'steer') this.#hear(data);
    else if (kind === 'replaced') await this.refresh({ rewritten: true }).catch((error) => this.#fail(error));
    else if (kind === 'run') this.started.add(callId(message));
    else if (kind === 'ask' || kind === 'decided') this.#wait(message, kind === 'ask');
    else if (kind === 'start') this.#begin();
    else if (kind === 'warn') this.notices.push(data.notice);
    else if (kind === 'end') this.#end(data.result);
    else if (message) this.#stand(message);
    this.#changed();
  }

  #say(field, { message_id: id, text }) {
    if (this.indexOf(id) >= 0) return;
    const draft = this.#drafts.get(id) ?? { id, kind: 'answer', role: 'assistant', draft: true, text: '', reasoning: '' };
    this.#drafts.set(id, { ...draft, [field]: draft[field] + text });
  }

  #hear({ message_id: id, text }) {
    if (this.indexOf(id) < 0) this.#steered.set(id, { id, kind: 'instruction', role: 'user', steered: true, text });
  }

  #begin() {
    this.notices = [];
    this.interrupted = false;
  }

  #wait(call, waits) {
    this.#deeds += 1;
    if (waits) this.waiting.set(callId(call), call);
    else this.waiting.delete(callId(call));
  }

  #end({ stop_reason: reason, notices }) {
    this.#deeds += 1;
    this.notices.push(...notices);
    this.interrupted = reason === 'suspended' && !this.waiting.size;
  }

  #stand(message) {
    if (message.result) this.started.delete(message.result.request_id);
    if (this.indexOf(message.id) >= 0) return;  // as it was loaded, with its other versions
    const index = message.index ?? this.total;
    this.#put(index, { ...message, index });
    this.total = Math.max(this.total, index + 1);
  }

  #fail(error) {
    if (error.name === 'AbortError') return;
    this.notices.push({ severity: 'error', text: error.message });
    this.#changed();
  }

  #changed() {
    if (this.#frame || this.closed) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#watchers.forEach((watcher) => watcher());
    });
  }
}

const callId = (message) => message.call?.call_id ?? message.call_id;

// A UUID that grows with time (version 7), as all ids here do.
function newId() {
  const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  const time = Date.now().toString(16).padStart(12, '0');
  const random = hex(crypto.getRandomValues(new Uint8Array(10)));
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(0, 3)}-8${random.slice(3, 6)}-${random.slice(6, 18)}`;
}
