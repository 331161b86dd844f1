// Markdown as sanitized HTML. Raw HTML is shown as text, images become links (nothing is fetched because a
// model said so), and the output passes DOMPurify, whose trusted type is the only one that the page's
// Content-Security-Policy allows in innerHTML.
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

// Inline parsing takes quadratic time in the length of a paragraph: while more than this remains, its lines
// are plain text.
const MAX_INLINE_CHARS = 10_000;

function plainLine(rest) {
  const [line] = rest.length > MAX_INLINE_CHARS ? rest.split('\n', 1) : [''];
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

// Thousands of nested quotes or lists overflow the stack: such a text is shown as plain text.
function parsed(text) {
  try {
    return marked.parse(text);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return codeBlock(text, '');
  }
}

/** Render Markdown as sanitized HTML. */
export function rendered(text) {
  return purifier.sanitize(parsed(text), CLEAN);
}

/** A component that renders Markdown. */
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
