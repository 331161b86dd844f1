// Texts for the clipboard. Browsers open it to pages of this machine and of https alone.
import { toast } from './toasts.js';

/** Whether the text is on the clipboard now; if not, the person is told. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    toast('The browser does not let this page copy. Select the text instead.', 'failed');
    return false;
  }
}
