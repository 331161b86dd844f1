// Texts for the clipboard. Browsers open it to pages of this machine and of https alone.
import { toast } from './toasts.js';

/** Whether the text is on the clipboard now; if not, the person is told. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    toast('The browser blocks copying on this page. Select the text instead.', 'failed');
    return false;
  }
}
