// Markdown of models and people as HTML that may stand in the page. Raw HTML in it is shown as text,
// pictures become links (nothing is fetched because a model said so), and whatever comes out passes
// DOMPurify, whose trusted type is the only one that the page's policy lets into innerHTML.
import './vendor/purify.min.js';
import { Marked } from './vendor/marked.esm.js';
import { copied } from './copying.js';
import { escaped, highlighted } from './syntax.js';
import { html, useMemo } from './view.js';

const TAGS = ['a', 'blockquote', 'br', 'button', 'code', 'del', 'div', 'em', 'h1', 'h2', 'h3', 'h4', 'h5',
  'h6', 'hr', 'input', 'li', 'ol', 'p', 'pre', 'span', 'strong', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul'];
const CLEAN = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ['href', 'class', 'type', 'checked', 'disabled', 'start', 'align', 'title'],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  ADD_URI_SAFE_ATTR: ['start', 'type', 'align'],  // DOMPurify takes them for addresses otherwise, and drops them
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_TRUSTED_TYPE: true,
};

const purifier = globalThis.DOMPurify;
purifier.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName === 'INPUT') Object.assign(node, { type: 'checkbox', disabled: true, ariaLabel: node.checked ? 'Done' : 'To do' });
  if (node.tagName !== 'A') return;
  node.setAttribute('rel', 'noopener noreferrer nofollow');
  node.setAttribute('target', '_blank');
});

// The time to look for emphasis, links and addresses grows with the square of a paragraph's length: while
// more than that is left of one, its lines are text and nothing else.
const LONGEST = 10_000;

function plainLine(rest) {
  const [line] = rest.length > LONGEST ? rest.split('\n', 1) : [''];
  return line ? { type: 'text', raw: line, text: line } : false;  // false: go on as usual
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  tokenizer: { escape: plainLine },  // which is asked first
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => `<a class="picture" href="${escaped(href)}">🖼 ${escaped(text || href)}</a>`,
    code: ({ text, lang }) => codeBlock(text, (lang ?? '').split(/\s/)[0]),
  },
});

function codeBlock(text, language) {
  const bar = `<div class="code-bar"><span>${escaped(language || 'text')}</span><button type="button" class="copy">Copy</button></div>`;
  return `<div class="code">${bar}<pre><code>${highlighted(text, language)}</code></pre></div>`;
}

// Thousands of quotes or lists inside each other are more than the stack holds: such a text is shown as it is.
function parsed(text) {
  try {
    return marked.parse(text);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return codeBlock(text, '');
  }
}

/** Clean HTML of a text in Markdown. */
export function rendered(text) {
  return purifier.sanitize(parsed(text), CLEAN);
}

/** A text in Markdown, drawn. */
export function Markdown({ text }) {
  const clean = useMemo(() => rendered(text), [text]);
  return html`<div class="prose" onClick=${clicked} dangerouslySetInnerHTML=${{ __html: clean }}></div>`;
}

async function clicked({ target }) {
  if (!target.classList.contains('copy')) return;
  if (!await copied(target.closest('.code').querySelector('code').textContent)) return;
  target.textContent = 'Copied';
  setTimeout(() => { target.textContent = 'Copy'; }, 1500);
}
