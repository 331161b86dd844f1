// One branch as it is read and as it grows: messages by position, loaded page by page, and what is being
// said right now. Events are applied in order, each once; what they tell and what the server stores
// are the same messages, so reloading in mid-answer shows the same as having stayed.
import { del, get, onBack, path, post, query } from './api.js';
import { follow } from './events.js';
import { newId } from './ids.js';
import { inTab } from './kept.js';
import { keepUnsent, unsent } from './unsent.js';

const PAGE = 60;

// {text, id} of what was sent on a branch and may not have arrived, over a reload too. Sent again it has the same
// id, and is said once.
const UNSURE = 'sennit.unsure.';
const unsure = (branch) => JSON.parse(inTab.get(UNSURE + branch));
const underWay = new Set();  // ids of those that the server has not answered to yet

/** What to send so that a text is said: `sent(true)` once it has arrived, else `sent(false)` gives whether it was seen to. */
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

// Who sees that a text has arrived need not send it again: it leaves the field it came back to.
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
  interrupted = false;         // the last run was cut off and can be resumed
  error = null;                 // why nothing could be loaded
  away = false;                 // the server could not be reached: what is shown may be old
  notices = [];                 // what is to be known about the last run, such as why it failed
  busy = new Set();             // what was asked of the server and not answered yet: 'runs', 'resume', 'cancel', call ids
  recalled = new Map();         // id of an instruction → [{kind, uri}] that the model was told with it
  waiting = new Map();          // call id → the call that a person must allow
  started = new Set();          // call ids whose tool is at work
  tools = new Map();            // call id → the tool that was called
  scores = new Map();           // message id → what a person thought of it
  #messages = new Map();        // position → message
  #places = new Map();          // message id → position
  #drafts = new Map();          // message id → {id, text, reasoning} that is still being said
  #steered = new Map();         // message id → what was said to the run, which it has not taken in yet
  #sending = new Map();         // message id → what is on its way to the server
  #asked = new Set();           // pages under way
  #era = 0;                     // grows when positions change: what was asked for before is void
  #loads = 0;                   // how often all was loaded: only the last one counts
  #deeds = 0;                   // grows when something is decided, judged or over
  #looks = 0;                   // how often the end was looked at
  #shown = 0;                   // which of these looks is shown
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

  /** What stands at a position: a message, a draft, or undefined while it is loaded. */
  at(index) {
    if (index < this.total) return this.#messages.get(index);
    return [...this.#drafts.values(), ...this.#steered.values(), ...this.#sending.values()][index - this.total];
  }

  /** Whether a tool call was never decided, because something else was said after it. */
  passedBy(index) {
    const { call } = this.at(index);
    for (let later = index + 1; later < this.length; later += 1) {
      const message = this.at(later);
      if (!message || message.result?.request_id === call.call_id || message.steered) return false;
      if (message.kind === 'instruction') return true;
    }
    return false;
  }

  /** What the model was told beside the messages for the answer at a position, where a turn ends: [{kind, uri}]. */
  toldAt(index) {
    if (this.at(index)?.kind !== 'answer' || !['instruction', undefined].includes(this.at(index + 1)?.kind)) return [];
    let asked = index;
    while (this.at(asked) && this.at(asked).kind !== 'instruction') asked -= 1;
    return this.recalled.get(this.at(asked)?.id) ?? [];
  }

  /** The position of a message that was loaded, or -1. */
  indexOf(id) { return this.#places.get(id) ?? -1; }

  /** Whether something was said last that nobody has answered. */
  get unanswered() {
    return this.loaded && !this.running && !this.interrupted && !this.waiting.size && !this.#sending.size && ['instruction', 'result'].includes(this.at(this.total - 1)?.kind);
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

  // Where its events begin, which tell what was said so far; and, once it has ended, how.
  async #lastRun() {
    const { runs } = await this.#get(this.url('runs') + query({ limit: 1 }));
    return runs[0];
  }

  async #toldBefore() {
    const { recalled } = await this.#get(this.url('recalled'));
    return new Map(recalled.map(({ message_id: id, items }) => [id, items]));
  }

  // What an interrupted run was saying, and what it was told and has not taken in, stands in its events alone.
  async #leftBy({ after }) {
    const drafts = new Map();
    const steered = new Map();
    await follow(this.url('events') + query({ after }), {
      after, signal: this.#life.signal, onLink: () => {}, underWay: () => false,
      onEvent: ({ kind, data }) => {
        const id = data.message_id ?? data.message?.id;
        if (kind === 'text.delta' || kind === 'reasoning.delta') drafts.set(id, grown(drafts.get(id), kind, data));
        else if (kind === 'message.queued') steered.set(id, told(data));
        else if (['draft.dropped', 'message.completed', 'message.interjected'].includes(kind)) { drafts.delete(id); steered.delete(id); }
      },
    });
    return { drafts, steered };
  }

  // Show what an interrupted run has left, unless it stands on the branch by now.
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
    for (const unplaced of [this.#drafts, this.#steered, this.#sending]) unplaced.delete(message.id);
    this.#messages.set(index, message);
    if (message.call) this.tools.set(callId(message), message.call.function);
    this.#places.set(message.id, index);
    arrived(this.branch, message.id);
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

  /** Ask the model; with a text, that is said first. What another window gets an answer to is told it, too. */
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
    this.#sending.set(id, { ...told({ message_id: id, text }), steered: false, sending: true });
    this.#changed();
  }

  // Calls that wait are not made any more once something else was said.
  #passBy() {
    this.#deeds += 1;
    this.waiting.clear();
  }

  // What is refused was asked for with an old picture in mind: somebody else was here. Look again.
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
      // Who left and came back while it was on its way sees the branch in another transcript.
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
      await this.refresh();  // it had just ended: what was said stands on the branch
    } catch (error) {
      if (!sent(error.code === 'exists')) throw error;
      return;  // it has arrived after all
    } finally {
      this.#sending.delete(said.id);
      this.#changed();
    }
    await this.run(asked).catch((error) => this.#fail(error));  // the text was taken: it is not to be written again
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

  // The run has heard something; if it was said here, it is no longer on its way.
  #hear(data) {
    if (this.indexOf(data.message_id) >= 0 || this.#steered.has(data.message_id)) return;
    this.#steered.set(data.message_id, told(data));
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
    if (this.indexOf(message.id) >= 0) return;  // as it was loaded, with its other versions
    const index = message.index ?? this.total;
    this.#put(index, { ...message, index });
    this.total = Math.max(this.total, index + 1);
  }

  #fail(error) {
    if (error.name === 'AbortError') return;
    if (error.passing) this.away = true;  // it is loaded again when the server is back
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

// A draft with one more piece of what is being said, or thought.
function grown(draft, kind, { message_id: id, text }) {
  const field = kind === 'text.delta' ? 'text' : 'reasoning';
  const before = draft ?? { id, kind: 'answer', role: 'assistant', text: '', reasoning: '' };
  return { ...before, draft: true, interrupted: false, [field]: before[field] + text };
}

// Something a person said that the model has not been told yet.
const told = ({ message_id: id, text }) => ({ id, kind: 'instruction', role: 'user', steered: true, text });
