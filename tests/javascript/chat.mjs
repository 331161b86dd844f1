// The AI SDK's chat, as `useChat` runs it in a page, pointed at /api/chat of a server of ours.
//
//   node chat.mjs URL
//
// prints what the page showed after each step, as one JSON object.

import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai'

const [url] = process.argv.slice(2)

// What React keeps for `useChat`.
class State {
  status = 'ready'
  error = undefined
  constructor(messages) {
    this.messages = messages
  }
  pushMessage = (message) => (this.messages = [...this.messages, message])
  popMessage = () => (this.messages = this.messages.slice(0, -1))
  replaceMessage = (at, message) => (this.messages = this.messages.with(at, message))
  snapshot = (value) => structuredClone(value)
}

class Chat extends AbstractChat {
  constructor(id, messages = []) {
    super({
      id,
      state: new State(messages),
      transport: new DefaultChatTransport({ api: `${url}/api/chat` }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
      onError: (error) => failures.push(error.message)
    })
  }
}

const failures = []
const history = async (id) => (await (await fetch(`${url}/api/chat/${id}`)).json()).messages
const shown = (messages) =>
  messages.map((message) =>
    message.parts
      .filter((part) => part.type !== 'step-start')
      .map((part) => part.text ?? [part.type, part.state, part.output ?? null])
  )

async function until(look) {
  while (!look()) await new Promise((resolve) => setTimeout(resolve, 10))
}

const did = {}
const chat = new Chat('knots')
await chat.sendMessage({ text: 'Name a knot.' })
await chat.sendMessage({ text: 'Why?' })
did.talked = shown(chat.messages)

await chat.regenerate()
did.regenerated = shown(chat.messages)

await chat.sendMessage({ text: 'Another.', messageId: chat.messages[0].id })
did.edited = shown(chat.messages)

const reloaded = new Chat('knots', await history('knots'))
did.reloaded = shown(reloaded.messages)
await reloaded.sendMessage({ text: 'weather' })
did.tools = shown(reloaded.messages).at(-1)

const shop = new Chat('shop')
await shop.sendMessage({ text: 'pay' })
did.waiting = shown(shop.messages).at(-1)
const request = shop.messages.at(-1).parts.find((part) => part.state === 'approval-requested')
await shop.addToolApprovalResponse({ id: request.approval.id, approved: true })
await until(() => shop.status === 'ready' && shown(shop.messages).at(-1).length > 1)
did.approved = shown(shop.messages)

const left = new Chat('left')
const leaving = left.sendMessage({ text: 'long' })
await until(() => left.messages.length > 1)
await left.stop()
await leaving
const back = new Chat('left', await history('left'))
did.left = shown(back.messages)
await back.resumeStream()
did.resumed = shown(back.messages)

did.failures = failures
console.log(JSON.stringify(did))
process.exit(0)
