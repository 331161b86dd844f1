// All shortcuts in one table: what the help shows is what works. A letter typed into a field is text.
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
  ['w', 'What the model saw for the selected answer'],
  ['y', 'Copy the selected message'],
  ['+ / -', 'Judge the selected answer good, bad'],
  ['a / d', 'Go to the tool that waits; again: approve, deny'],
  ['x', 'Stop the answer'],
  ['c', 'Chat'],
  ['t', 'Tree of branches'],
  ['b', 'Two branches side by side'],
  ['m', 'Memory'],
  ['u', 'Usage'],
  ['?', 'These shortcuts'],
];

const handlers = [];

/** As soon as a view is there, let it answer keys: {key: function}. The view that came last is asked first. */
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
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
    const deed = handlers.map(({ current }) => current[event.key]).find(Boolean);
    if (!deed) return;
    event.preventDefault();
    deed();
  });
}

// In a field, or while something stands above the page.
function typing({ target }) {
  return target.closest?.('input, textarea, select, [contenteditable]') || document.querySelector('dialog[open]');
}

export function showShortcuts() {
  return ask('Shortcuts', (close) => html`
    <dl class="shortcuts">${SHORTCUTS.map(([keys, words]) => html`<div key=${keys}>
      <dt>${keys.split(' / ').map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${words}</dd></div>`)}
    </dl>
    <p class="hint">Enter sends, Shift+Enter begins a new line, Escape leaves a field or closes what is open.</p>
    <div class="dialog-actions"><button class="button" onClick=${() => close(null)}>Close</button></div>`);
}
