// The conversations session of the Agents SDK, pointed at a server of ours.
//
//   node conversation.mjs URL
//
// prints the answers to four questions, and the texts of the items of the conversation.

import * as agents from '@openai/agents'
import OpenAI from 'openai'

const openai = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: 'none', maxRetries: 0 })
agents.setTracingDisabled(true)
agents.setDefaultOpenAIClient(openai)
agents.setOpenAIAPI('responses')
const agent = new agents.Agent({ name: 'Sage', model: 'sage' })
const session = new agents.OpenAIConversationsSession({ client: openai })
const answers = []
for (const question of ['one', 'two', 'two', 'three']) {
  answers.push((await agents.run(agent, question, { session })).finalOutput)
}
const items = await session.getItems()
console.log(JSON.stringify({ answers, items: items.map((item) => item.content[0].text) }))
process.exit(0)
