// Keyboard shortcuts, in one table that the help shows too. On pages with a message field, letters go there,
// wherever the focus is; Escape turns them into shortcuts until a field is focused.
import { ask } from './dialog.js';
import { html, useLayoutEffect, useRef } from './view.js';

const SHORTCUTS = [
  ['/', 'Search sessions and messages'],
  ['n', 'New session'],
  ['i', 'Write a message'],
  ['j / k', 'Next, previous message'],
  ['[ / ]', 'Previous, next version of the selected message'],
  ['e', 'Edit the selected message on a new branch'],
  ['r', 'Retry the selected answer on a new branch'],
  ['f', 'Fork after the selected message'],
  ['w', 'Show the prompt of the selected answer'],
  ['y', 'Copy the selected message'],
  ['+ / -', 'Label the selected answer good, bad'],
  ['a / d', 'Go to the pending tool call; press again to approve, deny'],
  ['x', 'Stop the answer'],
  ['c', 'Chat'],
  ['t', 'Branch tree'],
  ['b', 'Compare two branches'],
  ['m', 'Memory'],
  ['u', 'Usage'],
  ['?', 'These shortcuts'],
];

const FIELDS = 'input, textarea, select, [contenteditable]';
const ALWAYS = new Set(['/', '?', 'Escape']);
const STEPS = new Set(['j', 'k']);  // keys that repeat while held down
const handlers = [];
let commanding = false;  // whether letters are shortcuts although there is a message field

/** Register {key: function} while a view is mounted. The view mounted last comes first. */
export function useKeys(table) {
  const latest = useRef(table);
  latest.current = table;
  useLayoutEffect(() => {
    handlers.unshift(latest);
    return () => { handlers.splice(handlers.indexOf(latest), 1); };
  }, []);
}

export function listen() {
  addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    const escaped = event.key === 'Escape' && !document.activeElement?.matches(FIELDS);
    if (event.target.closest?.(FIELDS)) {
      if (escaped) commanding = true;  // Escape has left the field
      return;
    }
    const say = document.getElementById('say');
    if (say && !commanding && !ALWAYS.has(event.key) && [...event.key].length === 1 && event.key !== ' ') {
      say.focus();  // the letter is typed there
      return;
    }
    if (event.repeat && !STEPS.has(event.key)) return;
    const deed = handlers.map(({ current }) => current[event.key]).find(Boolean);
    if (escaped && !deed) commanding = true;  // Escape had nothing to close
    if (!deed) return;
    event.preventDefault();
    deed();
  });
  addEventListener('focusin', ({ target }) => { if (target.matches?.(FIELDS)) commanding = false; });
}

export function showShortcuts() {
  return ask('Shortcuts', (close) => html`
    <dl class="shortcuts">${SHORTCUTS.map(([keys, words]) => html`<div key=${keys}>
      <dt>${keys.split(' / ').map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${words}</dd></div>`)}
    </dl>
    <p class="hint">Typing goes into the message field. Press Escape first to use the letters above as shortcuts.
      Enter sends, Shift+Enter starts a new line.</p>
    <div class="dialog-actions"><button class="button" onClick=${() => close(null)}>Close</button></div>`, { stays: true });
}
