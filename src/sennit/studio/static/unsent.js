// Texts that are being written and were not taken yet, by the id of what they are for: a branch, a message
// that is edited, a call that is denied. They stay while their field is out of sight and over a reload,
// until the tab is closed.
import { inTab } from './kept.js';

const KEEP = 'sennit.unsent.';
const LONGEST = 500_000;  // a browser keeps some millions of characters in all
const texts = new Map();
const fields = new Map();  // id → what is told when its text changes

/** The text that is being written there, or undefined. */
export const unsent = (id) => texts.get(id) ?? inTab.get(KEEP + id) ?? undefined;

/** Keep a text; an empty one is forgotten. A field that is there shows it. */
export function keepUnsent(id, text) {
  if (text) texts.set(id, text);
  else texts.delete(id);
  if (text && text.length < LONGEST) inTab.set(KEEP + id, text);
  else inTab.remove(KEEP + id);
  fields.get(id)?.(text);
}

/** Call `show` with the text whenever it changes, wherever that was done. */
export function onUnsent(id, show) {
  fields.set(id, show);
  return () => { if (fields.get(id) === show) fields.delete(id); };
}
