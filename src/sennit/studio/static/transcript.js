// The state of one branch: messages by position, loaded in pages, and the drafts of a running answer. Events
// are applied in order, each once; they carry the same messages that the server stores, so a reload during an
// answer shows the same state.
import { del, get, onBack, path, post, query } from './api.js';
import { follow } from './events.js';
import { newId } from './ids.js';
import { inTab } from './kept.js';
import { keepUnsent, unsent } from './unsent.js';

const PAGE = 60;

// {text, id} of a message that was sent on a branch but not acknowledged; survives a reload. A retry uses the
// same id, so that the message is stored once.
const UNSURE = 'sennit.unsure.';
const unsure = (branch) => JSON.parse(inTab.get(UNSURE + branch));
const underWay = new Set();  // ids of requests without a response yet

/** Return {said, sent}: the message to send, and a callback for the outcome. `sent(false)` returns whether it arrived anyway. */
export function saying(branch, text) {
  const before = unsure(branch);
  const said = before?.text === text ? before : { text, id: newId() };
  inTab.set(UNSURE + branch, JSON.stringify(said));
  underWay.add(said.id);
  const sent = (sure) => {
    if (sure) inTab.remove(UNSURE + branch);
    underWay.delete(said.id);
    return unsure(branch)?.id !== said.id;
  };
  return { said, sent };
}

// The message has arrived: remove it from the field to which a failed request returned it.
function arrived(branch, id) {
  const said = unsure(branch);
  if (said?.id !== id) return;
  inTab.remove(UNSURE + branch);
  if (!underWay.has(id) && unsent(branch) === said.text) keepUnsent(branch, '');
}

export class Transcript {
  total = 0;
  loaded = false;
  running = false;
  linked = true;
  interrupted = false;         // the last run was interrupted and can be resumed
  error = null;                 // why nothing could be loaded
  away = false;                 // the server is unreachable: the view may be stale
  notices = [];                 // notices of the last run, such as its error
  busy = new Set();             // pending requests: 'runs', 'resume', 'cancel', call ids
  recalled = new Map();         // id of an instruction → [{kind, uri}] retrieved for its prompt
  waiting = new Map();          // call id → a call that needs approval
  started = new Set();          // ids of running calls
  tools = new Map();            // call id → the tool that was called
  scores = new Map();           // message id → the user's score
  #messages = new Map();        // position → message
  #places = new Map();          // message id → position
  #drafts = new Map();          // message id → {id, text, reasoning} that is streaming
  #steered = new Map();         // message id → a message queued for the run
  #sending = new Map();         // message id → a message being sent
  #asked = new Set();           // pages under way
  #era = 0;                     // grows when positions change, which invalidates pending page loads
  #loads = 0;                   // number of full loads: only the last one counts
  #deeds = 0;                   // grows with each decision, label and end of a run
  #looks = 0;                   // number of refreshes of the end
  #shown = 0;                   // the latest refresh that was applied
  #last = 0;                    // the number of the last event applied
  #upcoming = null;             // from where to follow next
  #watchers = new Set();
  #life = new AbortController();
  #frame = 0;

  constructor(session, branch) {
    this.session = session;
    this.branch = branch;
    const { signal } = this.#life;
    signal.addEventListener('abort', onBack(() => { if (this.away || this.error) this.load(); }));
    addEventListener('branchchange', ({ detail }) => { if (detail === branch && !this.running) this.load(); }, { signal });
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

  get length() { return this.total + this.#drafts.size + this.#steered.size + this.#sending.size; }

  /** Return the message or draft at a position, or undefined while it is loading. */
  at(index) {
    if (index < this.total) return this.#messages.get(index);
    return [...this.#drafts.values(), ...this.#steered.values(), ...this.#sending.values()][index - this.total];
  }

  /** Return whether a tool call was abandoned by a later message. */
  passedBy(index) {
    const { call } = this.at(index);
    for (let later = index + 1; later < this.length; later += 1) {
      const message = this.at(later);
      if (!message || message.result?.request_id === call.call_id || message.steered) return false;
      if (message.kind === 'instruction') return true;
    }
    return false;
  }

  /** Return the items retrieved for the answer at a position that ends a turn: [{kind, uri}]. */
  toldAt(index) {
    if (this.at(index)?.kind !== 'answer' || !['instruction', undefined].includes(this.at(index + 1)?.kind)) return [];
    let asked = index;
    while (this.at(asked) && this.at(asked).kind !== 'instruction') asked -= 1;
    return this.recalled.get(this.at(asked)?.id) ?? [];
  }

  /** Return the position of a loaded message, or -1. */
  indexOf(id) { return this.#places.get(id) ?? -1; }

  /** Whether the last message has no answer. */
  get unanswered() {
    return this.loaded && !this.running && !this.interrupted && !this.waiting.size && !this.#sending.size && ['instruction', 'result'].includes(this.at(this.total - 1)?.kind);
  }

  /** Locate a message as {branch_id, index}, on this branch if possible. */
  async find(id) {
    if (this.indexOf(id) >= 0) return { branch_id: this.branch, index: this.indexOf(id) };
    return this.#get(path('sessions', this.session, 'messages', id) + query({ branch: this.branch }));
  }

  /** Return the message at a position, loading it if necessary. */
  async message(index) {
    if (!this.#messages.has(index)) await this.#load(Math.floor(index / PAGE));
    return this.#messages.get(index);
  }

  url(...parts) { return path('sessions', this.session, 'branches', this.branch, ...parts); }

  #get(address) { return get(address, { signal: this.#life.signal }); }

  /**
   * Load the end of the branch and follow a running answer. Everything is shown at once, so that a visible
   * message has working actions. Data read before a decision is stale, and loaded again.
   */
  async load() {
    this.error = null;
    const mine = this.#loads += 1;
    const deeds = this.#deeds;
    try {
      // The branch first: its running or pending messages are then included in the messages.
      const branch = await this.#get(this.url());
      const [newest, calls, scores, run, recalled] = await Promise.all([
        this.#newest(), branch.waiting ? this.#waiting() : [], this.#judged(), this.#lastRun(), this.#toldBefore(),
      ]);
      const left = branch.interrupted && run ? await this.#leftBy(run) : null;
      if (mine !== this.#loads) return;
      if (deeds !== this.#deeds) { await this.load(); return; }
      this.#renew(newest);
      Object.assign(this, { scores, recalled: new Map([...this.recalled, ...recalled]), interrupted: branch.interrupted, loaded: true, away: false });
      this.waiting = new Map(calls.map((call) => [callId(call), call]));
      if (!this.running) this.notices = run?.result?.notices ?? [];
      if (left && !this.running) this.#keep(left);
      if (branch.running) this.#follow(run.after);
    } catch (error) {
      if (error.name === 'AbortError' || mine !== this.#loads) return;
      if (this.loaded) this.#fail(error);
      else Object.assign(this, { error, away: error.passing });
    }
    this.#changed();
  }

  async #waiting() { return (await this.#get(this.url('waiting'))).waiting; }

  // The position of its first event and, once it has ended, its result.
  async #lastRun() {
    const { runs } = await this.#get(this.url('runs') + query({ limit: 1 }));
    return runs[0];
  }

  async #toldBefore() {
    const { recalled } = await this.#get(this.url('recalled'));
    return new Map(recalled.map(({ message_id: id, items }) => [id, items]));
  }

  // The drafts and queued messages of an interrupted run exist only in its events.
  async #leftBy({ after }) {
    const drafts = new Map();
    const steered = new Map();
    await follow(this.url('events') + query({ after }), {
      after, signal: this.#life.signal, onLink: () => {}, underWay: () => false,
      onEvent: ({ kind, data }) => {
        const id = data.message_id ?? data.message?.id;
        if (kind === 'text.delta' || kind === 'reasoning.delta') drafts.set(id, grown(drafts.get(id), kind, data));
        else if (kind === 'message.queued') steered.set(id, queuedMessage(data));
        else if (['draft.dropped', 'message.completed', 'message.interjected'].includes(kind)) { drafts.delete(id); steered.delete(id); }
      },
    });
    return { drafts, steered };
  }

  // Show the drafts and queued messages of an interrupted run, unless they are on the branch by now.
  #keep({ drafts, steered }) {
    const open = ([id]) => this.indexOf(id) < 0;
    this.#drafts = new Map([...drafts].filter(open).map(([id, draft]) => [id, { ...draft, draft: false, interrupted: true }]));
    this.#steered = new Map([...steered].filter(open));
    this.#changed();
  }

  async #judged() {
    const { labels } = await this.#get(path('sessions', this.session, 'labels') + query({ by: 'user' }));
    return new Map(labels.map(({ message, score }) => [message, score]));
  }

  /** Load the missing pages between two positions. */
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
      const loaded = await this.#get(this.url('messages') + query({ after: page * PAGE - 1, limit: PAGE }));
      if (era === this.#era) this.#take(loaded);
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

  // A branch only grows: a stale response must not shrink it.
  #take({ messages, total }) {
    this.total = Math.max(this.total, total);
    for (const message of messages) this.#put(message.index, message);
  }

  #put(index, message) {
    for (const unplaced of [this.#drafts, this.#steered, this.#sending]) unplaced.delete(message.id);
    this.#messages.set(index, message);
    if (message.call) this.tools.set(callId(message), message.call.function);
    this.#places.set(message.id, index);
    arrived(this.branch, message.id);
  }

  /** Refresh the end of the branch; if it was rewritten, drop all loaded messages. */
  async refresh({ rewritten = false } = {}) {
    this.#renew(await this.#newest(rewritten));
  }

  async #newest(rewritten = false) {
    const asked = { rewritten, era: this.#era += rewritten, look: this.#looks += 1 };
    return { ...asked, page: await this.#get(this.url('messages') + query({ limit: PAGE })) };
  }

  // Ignore a refresh that a later one has overtaken.
  #renew({ page, rewritten, era, look }) {
    if (era !== this.#era || look < this.#shown) return;
    this.#shown = look;
    const moved = ({ index, id }) => this.#messages.has(index) && this.#messages.get(index).id !== id;
    if (rewritten || (!this.running && page.total < this.total) || page.messages.some(moved)) this.#forget();
    this.#take(page);
    this.#changed();
  }

  #forget() {
    this.#era += 1;
    this.total = 0;
    this.#messages.clear();
    this.#places.clear();
  }

  /** Run the model, after `text` if given. If another window is running the branch, steer that run instead. */
  async run(asked) {
    const { said, sent } = asked.text === undefined ? { said: {}, sent: () => false } : saying(this.branch, asked.text);
    if (said.id) this.#send(said);
    try {
      const { after } = await this.#do('runs', { ...asked, ...said });
      sent(true);
      this.#passBy();
      this.#follow(after);
    } catch (error) {
      this.#sending.delete(said.id);
      const there = sent(error.code === 'exists');
      if (error.code === 'busy' && said.id && this.running) return this.steer(said.text, { ...asked, text: undefined });
      if (!there) throw error;
    } finally {
      this.#changed();
    }
    return undefined;
  }

  #send({ id, text }) {
    this.#sending.set(id, { ...queuedMessage({ message_id: id, text }), steered: false, sending: true });
    this.#changed();
  }

  // A new message abandons pending calls.
  #passBy() {
    this.#deeds += 1;
    this.waiting.clear();
  }

  // A 4xx error means that the view is stale: reload.
  async #do(deed, asked, name = deed) {
    this.busy.add(name);
    this.#changed();
    try {
      return await post(this.url(...[deed].flat()), asked);
    } catch (error) {
      if (error.status >= 400 && error.status < 500) await this.load();
      throw error;
    } finally {
      this.busy.delete(name);
      this.#changed();
      // The branch may be open in a newer transcript by now: notify it.
      if (this.closed) dispatchEvent(new CustomEvent('branchchange', { detail: this.branch }));
    }
  }

  /** Send a message to the run under way, which takes it in before it asks the model again. */
  async steer(text, asked) {
    const { said, sent } = saying(this.branch, text);
    this.#send(said);
    try {
      const { running } = await this.#do('steer', said);
      sent(true);
      if (running) { this.#hear({ message_id: said.id, text }); return; }
      await this.refresh();  // it had just ended: the message is on the branch
    } catch (error) {
      if (!sent(error.code === 'exists')) throw error;
      return;  // it has arrived after all
    } finally {
      this.#sending.delete(said.id);
      this.#changed();
    }
    await this.run(asked).catch((error) => this.#fail(error));  // the text is stored: do not return it to the field
  }

  stop() { return this.#do('cancel', { mode: 'now' }); }

  async resume() {
    const { after } = await this.#do('resume');
    this.#follow(after);
  }

  async decide(call, approve, message) {
    const id = callId(call);
    if (this.busy.has(id)) return;
    const { run } = await this.#do(['approvals', id], { approve, message: message || undefined }, id).catch((error) => {
      if (error.status === 404) error.message = 'This call no longer waits for a decision.';
      throw error;
    });
    this.#wait(call, false);
    this.#changed();
    if (run) this.#follow(run.after);
  }

  /** Label an answer "up" or "down"; the same label again removes it. */
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

  // One stream at a time: a run that starts while the last stream ends is followed after it.
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
      await this.refresh().catch((error) => this.#fail(error));  // events do not contain sibling versions
    }
    this.running = false;
    this.linked = true;
    if (this.interrupted) this.#keep({ drafts: this.#drafts, steered: this.#steered });
    else this.#keep({ drafts: [], steered: [] });
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
    if (kind === 'text.delta' || kind === 'reasoning.delta') this.#say(kind, data);
    else if (kind === 'draft.dropped') this.#drafts.delete(data.message_id);
    else if (kind === 'message.queued') this.#hear(data);
    else if (kind === 'history.replaced') await this.refresh({ rewritten: true }).catch((error) => this.#fail(error));
    else if (kind === 'tool.started') this.started.add(callId(message));
    else if (kind === 'approval.required' || kind === 'approval.decided') this.#wait(message, kind === 'approval.required');
    else if (kind === 'run.started') this.#begin();
    else if (kind === 'context.added') this.recalled.set(data.message_id, data.items);
    else if (kind === 'warning.issued') this.notices.push(data.notice);
    else if (kind === 'run.ended') this.#end(data.result);
    else if (message) this.#stand(message);
    this.#changed();
  }

  #say(kind, data) {
    const id = data.message_id;
    if (this.indexOf(id) < 0) this.#drafts.set(id, grown(this.#drafts.get(id), kind, data));
  }

  // A message was queued for the run; if it was sent from here, it has arrived.
  #hear(data) {
    if (this.indexOf(data.message_id) >= 0 || this.#steered.has(data.message_id)) return;
    this.#steered.set(data.message_id, queuedMessage(data));
    this.#sending.delete(data.message_id);
    arrived(this.branch, data.message_id);
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
    if (this.indexOf(message.id) >= 0) return;  // already loaded, with its sibling versions
    const index = message.index ?? this.total;
    this.#put(index, { ...message, index });
    this.total = Math.max(this.total, index + 1);
  }

  #fail(error) {
    if (error.name === 'AbortError') return;
    if (error.passing) this.away = true;  // reloaded when the server is back
    else this.notices.push({ severity: 'error', text: error.message });
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

// Append a delta of text or reasoning to a draft.
function grown(draft, kind, { message_id: id, text }) {
  const field = kind === 'text.delta' ? 'text' : 'reasoning';
  const before = draft ?? { id, kind: 'answer', role: 'assistant', text: '', reasoning: '' };
  return { ...before, draft: true, interrupted: false, [field]: before[field] + text };
}

// A user message that the model has not received yet.
const queuedMessage = ({ message_id: id, text }) => ({ id, kind: 'instruction', role: 'user', steered: true, text });
