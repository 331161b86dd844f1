// AG-UI's own client, pointed at /api/ag-ui of a server of ours.
//
//   node agent.mjs URL
//
// prints the messages that the client has after each step, as one JSON object.

import { HttpAgent } from '@ag-ui/client'

const [url] = process.argv.slice(2)
const endpoint = `${url}/api/ag-ui`
const agentOf = (threadId, initialMessages = []) => new HttpAgent({ url: endpoint, threadId, initialMessages })
const history = async (id) => (await (await fetch(`${endpoint}/${id}`)).json()).messages
const shown = (messages) =>
  messages.map((one) => [one.role, one.toolCalls?.map((call) => call.function.name) ?? one.content])

async function say(agent, content, more = {}) {
  agent.addMessage({ id: crypto.randomUUID(), role: 'user', content })
  await agent.runAgent(more)
}

const did = {}
const agent = agentOf('knots')
await say(agent, 'Name a knot.')
await say(agent, 'think')
did.talked = shown(agent.messages)

const reloaded = agentOf('knots', await history('knots'))
did.reloaded = shown(reloaded.messages)
await say(reloaded, 'weather')
did.tools = shown(reloaded.messages.slice(5))

reloaded.setMessages(reloaded.messages.slice(0, 2))
await say(reloaded, 'Another.')
did.edited = shown(reloaded.messages)

const shop = agentOf('shop')
let interrupts = []
shop.addMessage({ id: 'm1', role: 'user', content: 'pay' })
await shop.runAgent({}, {
  onRunFinishedEvent: ({ event }) => (interrupts = event.outcome?.interrupts ?? [])
})
did.interrupts = interrupts.map((one) => [one.reason, one.message, one.toolCallId])
await shop.runAgent({
  resume: interrupts.map(({ id }) => ({ interruptId: id, status: 'resolved', payload: { approved: true } }))
})
did.approved = shown(shop.messages)

const other = agentOf('context')
await say(other, 'context', { context: [{ description: 'The page', value: 'is about ropes' }] })
did.context = shown(other.messages)

console.log(JSON.stringify(did))
process.exit(0)
