// Drafts that were not sent yet, by id: of a branch, an edited message, or a denied call. They survive
// navigation and a reload, until the tab is closed.
import { inTab } from './kept.js';

const KEEP = 'sennit.unsent.';
const MAX_STORED_CHARS = 500_000;  // browsers store some millions of characters in total
const texts = new Map();
const fields = new Map();  // id → callback for changes of its text

/** Return the draft with that id, or undefined. */
export const unsent = (id) => texts.get(id) ?? inTab.get(KEEP + id) ?? undefined;

/** Store a draft, or remove an empty one, and update its field. */
export function keepUnsent(id, text) {
  if (text) texts.set(id, text);
  else texts.delete(id);
  if (text && text.length < MAX_STORED_CHARS) inTab.set(KEEP + id, text);
  else inTab.remove(KEEP + id);
  fields.get(id)?.(text);
}

/** Call `show` with the draft whenever it changes. */
export function onUnsent(id, show) {
  fields.set(id, show);
  return () => { if (fields.get(id) === show) fields.delete(id); };
}
