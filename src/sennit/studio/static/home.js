// The start page: the first message starts a session.
import { path, post } from './api.js';
import { useChoice } from './choice.js';
import { Composer } from './composer.js';
import { Icon, Mark } from './icons.js';
import { useKeys } from './keys.js';
import { go, sessionLink } from './route.js';
import { begin } from './sessions.js';
import { attempt } from './toasts.js';
import { saying } from './transcript.js';
import { keepUnsent } from './unsent.js';
import { html, useRef } from './view.js';

export function HomePage({ models }) {
  const [ask, choose] = useChoice(models);
  const field = useRef(null);
  useKeys({ i: () => field.current?.focus() });
  const send = (text) => attempt(async () => {
    const session = await post('/api/sessions');
    const [branch] = session.branches;
    const { said, sent } = saying(branch.id, text);
    const asked = await attempt(() => post(path('sessions', session.id, 'branches', branch.id, 'runs'), { ...ask, ...said }));
    sent(Boolean(asked));
    if (!asked) keepUnsent(branch.id, text);
    dispatchEvent(new Event('sessionschange'));
    if (field.current?.isConnected) go(sessionLink(session.id, branch.id));  // unless the person went elsewhere meanwhile
    return true;
  });
  return html`<div class="welcome">
    <div class="welcome-words"><${Mark} /><h1>Conversations that branch</h1>
      <p>Edit any message, retry any answer: every version stays. Compare versions side by side, inspect the prompt, and see where each memory came from.</p></div>
    <${Composer} branch="" first models=${models} ask=${ask} choose=${choose} onSend=${send} control=${(made) => { field.current = made; }} />
    <p class="welcome-more"><button class="button quiet" onClick=${begin}><${Icon} name="plus" />New session with a name or instructions</button>
      <span class="hint">Press <kbd>?</kbd> for keyboard shortcuts</span></p>
  </div>`;
}
