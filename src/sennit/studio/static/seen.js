// The prompt of an answer: every part of it, in order, with its tokens. Parts
// that stand on no branch (memories, summaries) say where they came from.
import { Icon } from './icons.js';
import { useAnswer } from './reading.js';
import { pageLink, sessionLink } from './route.js';
import { Empty, Failed } from './states.js';
import { html } from './view.js';
import { gist, many, number } from './words.js';

const KINDS = {
  system: 'System', memory: 'Memory', recalled: 'From another conversation', profile: 'Profile', summary: 'Summary', message: 'Message',
  tools: 'Tools', replaced: 'Summary of earlier messages',
};

export function SeenPanel({ address, close }) {
  const { answer: seen, error, again } = useAnswer(address);
  return html`<aside class="panel" aria-label="Prompt">
    <header class="panel-head"><h2>Prompt</h2>
      <button class="icon-button" aria-label="Close" onClick=${close}><${Icon} name="close" /></button></header>
    ${error && html`<${Failed} error=${error} again=${again} />`}
    ${!seen && !error && html`<${Empty}>Loading…<//>`}
    ${seen && html`<${Parts} seen=${seen} />`}
  </aside>`;
}

function Parts({ seen }) {
  const most = Math.max(1, ...seen.parts.map(({ tokens }) => tokens));
  return html`<div class="panel-body">
    <p class="seen-sum"><b>${number(seen.counted ?? seen.tokens)}</b> tokens, ${seen.counted ? 'as counted by the model' : 'estimated'} · ${many(seen.parts.length, 'part')}${seen.model && html` · <span class="tool-name">${seen.model}</span>`}</p>
    <${Shares} seen=${seen} />
    <ol class="parts">${seen.parts.map((part, index) => html`<${Part} key=${index} part=${part} most=${most} />`)}</ol>
  </div>`;
}

function Shares({ seen }) {
  const sums = new Map();
  for (const { kind, tokens } of seen.parts) sums.set(kind, (sums.get(kind) ?? 0) + tokens);
  return html`<div class="shares" role="img" aria-label=${[...sums].map(([kind, tokens]) => `${KINDS[kind] ?? kind}: ${tokens} tokens`).join(', ')}>
    ${[...sums].map(([kind, tokens]) => html`<span key=${kind} class="share kind-${kind}" style=${{ flexGrow: tokens || 1 }} title="${KINDS[kind] ?? kind}: ${tokens} tokens"></span>`)}
  </div>`;
}

function Part({ part, most }) {
  return html`<li><details class="part kind-${part.kind}">
    <summary><span class="part-kind">${KINDS[part.kind] ?? part.kind}</span>
      <span class="peek">${gist(part.text?.replace(/^Instruction: /, ''), 60)}</span>
      <span class="tokens">${number(part.tokens)}</span>
      <span class="meter"><span style=${{ width: `${(100 * part.tokens) / most}%` }}></span></span></summary>
    ${source(part)}
    <pre>${part.text ?? 'Erased since then.'}</pre>
  </details></li>`;
}

// A link to the source of a retrieved part: a memory, or a message of another session.
function source({ session, message_id: message, uri }) {
  if (session) return html`<p><a href=${sessionLink(session, null, { m: message })}>Show the message</a></p>`;
  return uri?.startsWith('viking://session') || !uri ? null : html`<p><a href=${pageLink('memory', { uri })}>Show the memory</a></p>`;
}
