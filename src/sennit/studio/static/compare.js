// Two branches side by side from the last message they share.
import { path, query } from './api.js';
import { colourOf } from './colours.js';
import { Icon } from './icons.js';
import { Markdown } from './markdown.js';
import { useAnswer } from './reading.js';
import { go, sessionLink } from './route.js';
import { Empty, Failed } from './states.js';
import { ToolCall, ToolResult } from './tools.js';
import { html, useState } from './view.js';
import { line, many } from './words.js';

const FIRST = 100;
const WHO = { instruction: 'You', answer: 'Model', system: 'System', record: 'Record' };

export function CompareView({ session, branches, branch, other, version }) {
  const chosen = branches.find(({ id }) => id === other) ?? nearest(branches, branch);
  const address = chosen ? path('sessions', session.id, 'diff') + query({ a: branch.id, b: chosen.id }) : null;
  const { answer: diff, error, again } = useAnswer(address, version);
  if (!chosen) return html`<${Empty}>This session has only one branch. Edit a message, retry an answer or fork, then compare the two here.<//>`;
  const pick = (a, b) => go(sessionLink(session.id, a, { view: 'compare', with: b }));
  return html`<section class="compare" aria-label="Two branches side by side">
    <div class="compare-bar">
      <${Pick} label="Left" branches=${branches} value=${branch.id} onPick=${(id) => pick(id, chosen.id)} />
      <button class="icon-button" aria-label="Swap sides" title="Swap sides" onClick=${() => pick(chosen.id, branch.id)}>⇄</button>
      <${Pick} label="Right" branches=${branches} value=${chosen.id} onPick=${(id) => pick(branch.id, id)} />
    </div>
    ${error && html`<${Failed} error=${error} again=${again} />`}
    ${!diff && !error && html`<${Empty}>Comparing…<//>`}
    ${diff && html`<${Shared} diff=${diff} />
      <div class="sides">
        <${Side} session=${session} branch=${branch} messages=${diff.since_a} more=${diff.more_a} />
        <${Side} session=${session} branch=${chosen} messages=${diff.since_b} more=${diff.more_b} />
      </div>`}
  </section>`;
}

function nearest(branches, branch) {
  const parent = branch.forked_from?.branch_id;
  return branches.find(({ id }) => id === parent) ?? branches.find(({ id }) => id !== branch.id);
}

function Pick({ label, branches, value, onPick }) {
  return html`<select class="select ${colourOf(value)}" aria-label=${label} value=${value} onChange=${(event) => onPick(event.target.value)}>
    ${branches.map(({ id, name }) => html`<option key=${id} value=${id}>${name}</option>`)}</select>`;
}

function Shared({ diff }) {
  return html`<div class="shared">
    <p><${Icon} name="branch" /> ${diff.common ? html`They share ${many(diff.common, 'message')}` : 'They share no message'}${
      diff.same_system === false && ', but not the system message'}.</p>
    ${diff.ancestor && html`<blockquote><b>${WHO[diff.ancestor.kind] ?? diff.ancestor.type ?? 'Tool'}:</b> ${line(textOf(diff.ancestor), 160)}</blockquote>`}
  </div>`;
}

// Return the text of a message of any kind.
function textOf({ text, call, result }) {
  if (call) return call.function;
  return result ? JSON.stringify(result.success ? result.result : result.error) : text;
}

function Side({ session, branch, messages, more }) {
  const [all, setAll] = useState(false);
  const shown = all ? messages : messages.slice(0, FIRST);
  const tools = new Map(messages.filter(({ call }) => call).map(({ call }) => [call.call_id, call.function]));
  return html`<div class="column ${colourOf(branch.id)}" aria-label=${branch.name}>
    <h3><a href=${sessionLink(session.id, branch.id)}>${branch.name}</a><small>${many(messages.length + more, 'message')} since</small></h3>
    ${shown.map((message) => html`<${Entry} key=${message.id} message=${message} tool=${tools.get(message.result?.request_id)} />`)}
    ${!messages.length && html`<p class="hint">No messages since.</p>`}
    ${shown.length < messages.length && html`<button class="button" onClick=${() => setAll(true)}>Show ${messages.length - shown.length} more</button>`}
    ${shown.length === messages.length && more > 0 && html`<p class="hint">${many(more, 'more message')} on the branch itself.</p>`}
  </div>`;
}

function Entry({ message, tool }) {
  if (message.call) return html`<div class="entry"><${ToolCall} message=${message} /></div>`;
  if (message.result) return html`<div class="entry"><${ToolResult} message=${message} tool=${tool} /></div>`;
  return html`<div class="entry ${message.kind}"><b class="who">${WHO[message.kind] ?? message.type}</b><${Markdown} text=${message.text} /></div>`;
}
