// Clipboard access, which browsers allow only on localhost and over https.
import { toast } from './toasts.js';

/** Copy the text; return whether that worked, and show a toast if not. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    toast('The browser blocks copying on this page. Select the text instead.', 'failed');
    return false;
  }
}
