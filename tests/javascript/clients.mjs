// Clients of OpenAI's and Anthropic's APIs in JavaScript, pointed at a server of ours.
//
//   node clients.mjs URL CLIENTS [CASE]
//
// prints what each client did in each case, as one JSON object; `tests/server/test_clients.py` has the
// cases.

import { HttpAgent } from '@ag-ui/client'
import Anthropic from '@anthropic-ai/sdk'
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { HumanMessage } from '@langchain/core/messages'
import { tool as langchainTool } from '@langchain/core/tools'
import { ChatAnthropic } from '@langchain/anthropic'
import { ChatOpenAI } from '@langchain/openai'
import * as agents from '@openai/agents'
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai'
import OpenAI from 'openai'
import { z } from 'zod'

const [url, names, only] = process.argv.slice(2)
const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const CITY = z.object({ city: z.string() })
const KNOT = z.object({ name: z.string(), slips: z.boolean() })
const KNOT_SCHEMA = {
  type: 'object',
  properties: { name: { type: 'string' }, slips: { type: 'boolean' } },
  required: ['name', 'slips'],
  additionalProperties: false
}
const forecast = ({ city }) => `rain in ${city}`
const user = (content) => ({ role: 'user', content })
const assistant = (content) => ({ role: 'assistant', content })
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
const anthropic = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 })

// The status of each failure: a model that is not there, and texts at which the server's model fails.
async function statuses(ask) {
  const failures = [['none', 'x'], ['sage', 'too much'], ['sage', 'too often']]
  return Promise.all(
    failures.map(async (failure) => {
      try {
        await ask(...failure)
      } catch (error) {
        const name = error.name === 'Error' ? error.constructor.name : error.name
        if (name === 'Error' && error.code) return error.code
        return `${name} ${error.status ?? error.statusCode ?? error.cause?.status}`
      }
    })
  )
}

// Ends a stream after its first piece.
async function cut(pieces, controller) {
  for await (const piece of pieces) {
    if (piece) {
      controller.abort()
      return piece
    }
  }
}

async function joined(pieces) {
  let text = ''
  for await (const piece of pieces) text += piece
  return text
}

async function* deltas(stream, text) {
  for await (const event of stream) yield text(event) ?? ''
}

const chatText = (chunk) => chunk.choices[0]?.delta?.content
const responseText = (event) => (event.type === 'response.output_text.delta' ? event.delta : '')
const messageText = (event) => (event.delta?.type === 'text_delta' ? event.delta.text : '')

function ofOpenAI() {
  const create = (messages, more = {}, options = {}) =>
    openai.chat.completions.create({ model: 'sage', messages, ...more }, options)
  const text = async (...args) => (await create(...args)).choices[0].message.content
  return {
    plain: () => text([user('one')]),
    stream: async () => joined(deltas(await create([user('two')], { stream: true }), chatText)),
    tools: async () =>
      openai.chat.completions
        .runTools({
          model: 'sage',
          messages: [user('weather')],
          tools: [
            {
              type: 'function',
              function: {
                name: 'weather',
                parameters: z.toJSONSchema(CITY),
                parse: JSON.parse,
                function: forecast
              }
            }
          ]
        })
        .finalContent(),
    schema: async () => {
      const format = { type: 'json_schema', json_schema: { name: 'knot', schema: KNOT_SCHEMA } }
      return JSON.parse(await text([user('schema')], { response_format: format }))
    },
    picture: () =>
      text([
        user([
          { type: 'text', text: 'picture' },
          { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } }
        ])
      ]),
    edit: async () => {
      await text([user('three'), assistant('You said: three'), user('four')])
      return text([user('three'), assistant('You said: three'), user('five')])
    },
    cancel: async () => {
      const controller = new AbortController()
      const options = { signal: controller.signal }
      return cut(deltas(await create([user('long')], { stream: true }, options), chatText), controller)
    },
    errors: () => statuses((model, text) => create([user(text)], { model }))
  }
}

function ofResponses() {
  const create = (input, more = {}, options = {}) =>
    openai.responses.create({ model: 'sage', input, ...more }, options)
  return {
    plain: async () => (await create('one')).output_text,
    stream: async () => joined(deltas(await create('two', { stream: true }), responseText)),
    tools: async () => {
      const parameters = z.toJSONSchema(CITY)
      const tools = [{ type: 'function', name: 'weather', parameters, strict: true }]
      const first = await create('weather', { tools })
      const outputs = first.output.map((call) => ({
        type: 'function_call_output',
        call_id: call.call_id,
        output: forecast(JSON.parse(call.arguments))
      }))
      return (await create(outputs, { tools, previous_response_id: first.id })).output_text
    },
    schema: async () => {
      const format = { type: 'json_schema', name: 'knot', schema: KNOT_SCHEMA }
      return JSON.parse((await create('schema', { text: { format } })).output_text)
    },
    picture: async () => {
      const image = { type: 'input_image', image_url: `data:image/png;base64,${PNG}` }
      const content = [{ type: 'input_text', text: 'picture' }, image]
      return (await create([user(content)])).output_text
    },
    edit: async () => {
      const first = await create('three')
      await create('four', { previous_response_id: first.id })
      return (await create('five', { previous_response_id: first.id })).output_text
    },
    cancel: async () => {
      const controller = new AbortController()
      const stream = await create('long', { stream: true }, { signal: controller.signal })
      return cut(deltas(stream, responseText), controller)
    },
    errors: () => statuses((model, text) => create(text, { model }))
  }
}

function ofAnthropic() {
  const ask = { model: 'sage', max_tokens: 4000 }
  const create = (messages, more = {}, options = {}) =>
    anthropic.messages.create({ ...ask, messages, ...more }, options)
  const text = async (...args) => (await create(...args)).content[0].text
  return {
    plain: () => text([user('one')]),
    stream: async () => {
      const stream = anthropic.messages.stream({ ...ask, messages: [user('two')] })
      return (await stream.finalMessage()).content[0].text
    },
    tools: async () => {
      const weather = betaZodTool({
        name: 'weather',
        description: 'The forecast.',
        inputSchema: CITY,
        run: forecast
      })
      const messages = [user('weather')]
      const last = await anthropic.beta.messages.toolRunner({ ...ask, tools: [weather], messages })
      return last.content[0].text
    },
    schema: async () => {
      const format = { type: 'json_schema', schema: KNOT_SCHEMA }
      return JSON.parse(await text([user('schema')], { output_config: { format } }))
    },
    picture: () => {
      const source = { type: 'base64', media_type: 'image/png', data: PNG }
      return text([user([{ type: 'text', text: 'picture' }, { type: 'image', source }])])
    },
    thinking: async () => {
      const thinking = { type: 'enabled', budget_tokens: 1024 }
      const first = await create([user('think')], { thinking })
      const history = [user('think'), assistant(first.content), user('six')]
      return [first.content[0].thinking, (await create(history, { thinking })).content[0].text]
    },
    edit: async () => {
      await text([user('three'), assistant('You said: three'), user('four')])
      return text([user('three'), assistant('You said: three'), user('five')])
    },
    cancel: async () => {
      const controller = new AbortController()
      const options = { signal: controller.signal }
      return cut(deltas(await create([user('long')], { stream: true }, options), messageText), controller)
    },
    errors: () => statuses((model, text) => create([user(text)], { model }))
  }
}

function ofAISDK(provider) {
  const more = {
    model: provider('sage'),
    maxRetries: 0,
    maxOutputTokens: 4000,
    providerOptions: {
      anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } },
      openai: { reasoningSummary: 'auto', forceReasoning: true }
    }
  }
  const weather = tool({ inputSchema: CITY, execute: async (input) => forecast(input) })
  const steps = { tools: { weather }, stopWhen: stepCountIs(3) }
  const text = async (messages) => (await generateText({ ...more, messages })).text
  const stream = (prompt, options = {}) =>
    streamText({
      ...more,
      prompt,
      ...options,
      onError: ({ error }) => {
        throw error
      }
    }).textStream
  return {
    plain: () => text([user('one')]),
    stream: () => joined(stream('two')),
    tools: async () => (await generateText({ ...more, ...steps, prompt: 'weather' })).text,
    toolsStreamed: () => joined(stream('Weather!', steps)),
    schema: async () => (await generateObject({ ...more, prompt: 'schema', schema: KNOT })).object,
    picture: () => {
      const image = { type: 'image', image: Buffer.from(PNG, 'base64') }
      return text([user([{ type: 'text', text: 'picture' }, image])])
    },
    again: async () => {
      const first = await generateText({ ...more, prompt: 'think' })
      return text([user('think'), ...first.response.messages, user('six')])
    },
    edit: async () => {
      await text([user('three'), assistant('You said: three'), user('four')])
      return text([user('three'), assistant('You said: three'), user('five')])
    },
    cancel: async () => {
      const controller = new AbortController()
      return cut(stream('long', { abortSignal: controller.signal }), controller)
    },
    errors: () =>
      statuses((name, text) => generateText({ model: provider(name), prompt: text, maxRetries: 0 }))
  }
}

function ofLangChain(create) {
  const model = create('sage')
  const weather = langchainTool(async (input) => forecast(input), {
    name: 'weather',
    description: 'The forecast.',
    schema: CITY
  })
  return {
    plain: async () => (await model.invoke('one')).text,
    stream: async () => joined(deltas(await model.stream('two'), (chunk) => chunk.text)),
    tools: async () => {
      const messages = [new HumanMessage('weather')]
      const bound = model.bindTools([weather])
      messages.push(await bound.invoke(messages))
      for (const call of messages[1].tool_calls) messages.push(await weather.invoke(call))
      return (await bound.invoke(messages)).text
    },
    schema: () => model.withStructuredOutput(KNOT, { method: 'jsonSchema' }).invoke('schema'),
    picture: async () => {
      const image = { type: 'image', mimeType: 'image/png', data: PNG }
      const contentBlocks = [{ type: 'text', text: 'picture' }, image]
      return (await model.invoke([new HumanMessage({ contentBlocks })])).text
    },
    edit: async () => {
      const history = (last) => [user('three'), assistant('You said: three'), user(last)]
      await model.invoke(history('four'))
      return (await model.invoke(history('five'))).text
    },
    cancel: async () => {
      const controller = new AbortController()
      const stream = await model.stream('long', { signal: controller.signal })
      return cut(deltas(stream, (chunk) => chunk.text), controller)
    },
    errors: () => statuses((name, text) => create(name).invoke(text))
  }
}

function ofAgents(api) {
  agents.setTracingDisabled(true)
  agents.setDefaultOpenAIClient(openai)
  agents.setOpenAIAPI(api)
  const weather = agents.tool({
    name: 'weather',
    description: 'The forecast.',
    parameters: CITY,
    execute: async (input) => forecast(input)
  })
  const agent = (model, more = {}) => new agents.Agent({ name: 'Sage', model, ...more })
  const text = async (input, more) => (await agents.run(agent('sage', more), input)).finalOutput
  return {
    plain: () => text('one'),
    stream: async () => {
      const result = await agents.run(agent('sage'), 'two', { stream: true })
      return joined(result.toTextStream())
    },
    tools: () => text('weather', { tools: [weather] }),
    schema: () => text('schema', { outputType: KNOT }),
    picture: () => {
      const image = { type: 'input_image', image: `data:image/png;base64,${PNG}` }
      return text([user([{ type: 'input_text', text: 'picture' }, image])])
    },
    edit: async () => {
      const first = (await agents.run(agent('sage'), 'three')).history
      await text([...first, user('four')])
      return text([...first, user('five')])
    },
    cancel: async () => {
      const controller = new AbortController()
      const options = { stream: true, signal: controller.signal }
      const result = await agents.run(agent('sage'), 'long', options)
      const piece = await cut(result.toTextStream(), controller)
      await result.completed.catch(() => {})
      return piece
    },
    again: async () => {
      const first = await agents.run(agent('sage'), 'think')
      return text([...first.history, user('six')])
    },
    errors: () => statuses((model, words) => agents.run(agent(model), words))
  }
}

// Of AG-UI, whose server has the tools.
function ofAgUI() {
  const endpoint = `${url}/api/ag-ui`
  const run = async (text, { id = text, earlier = [], props = {}, watch = {} } = {}) => {
    const agent = new HttpAgent({ url: endpoint, threadId: `ag-ui ${id}`, initialMessages: earlier })
    agent.addMessage({ id: crypto.randomUUID(), role: 'user', content: text })
    let failed = null
    const onRunErrorEvent = ({ event }) => (failed = event.code)
    await agent.runAgent({ forwardedProps: props }, { onRunErrorEvent, ...watch })
    if (failed) throw Object.assign(new Error(), { code: failed })
    return agent.messages
  }
  const text = async (...args) => (await run(...args)).at(-1).content
  return {
    plain: () => text('one'),
    stream: async () => {
      let streamed = ''
      await run('two', { watch: { onTextMessageContentEvent: ({ event }) => (streamed += event.delta) } })
      return streamed
    },
    tools: () => text('weather'),
    picture: () => {
      const source = { type: 'data', value: PNG, mimeType: 'image/png' }
      return text([{ type: 'text', text: 'picture' }, { type: 'image', source }], { id: 'picture' })
    },
    edit: async () => {
      const earlier = await run('three')
      await run('four', { id: 'three', earlier })
      return text('five', { id: 'three', earlier })
    },
    cancel: async () => {
      let streamed = ''
      const stop = () => fetch(`${endpoint}/${encodeURIComponent('ag-ui long')}/stop`, { method: 'POST' })
      const onTextMessageContentEvent = async ({ event }) => {
        if (!streamed) await stop()
        streamed += event.delta
      }
      await run('long', { watch: { onTextMessageContentEvent } }).catch(() => {})
      return streamed
    },
    errors: () => statuses((model, words) => run(words, { props: { model } }))
  }
}

const local = { baseURL: `${url}/v1`, apiKey: 'none' }
const langchainOpenAI = (more) => (model) =>
  new ChatOpenAI({ model, apiKey: 'none', configuration: local, maxRetries: 0, ...more })
const langchainAnthropic = (model) =>
  new ChatAnthropic({ model, apiKey: 'none', anthropicApiUrl: url, maxRetries: 0 })
const clients = {
  openai: ofOpenAI,
  'openai responses': ofResponses,
  anthropic: ofAnthropic,
  'ai openai': () => ofAISDK(createOpenAI(local)),
  'ai openai chat': () => ofAISDK(createOpenAI(local).chat),
  'ai anthropic': () => ofAISDK(createAnthropic(local)),
  'ai openai-compatible': () =>
    ofAISDK(createOpenAICompatible({ name: 'sennit', baseURL: `${url}/v1` })),
  'langchain openai': () => ofLangChain(langchainOpenAI()),
  'langchain responses': () => ofLangChain(langchainOpenAI({ useResponsesApi: true })),
  'langchain anthropic': () => ofLangChain(langchainAnthropic),
  'agents responses': () => ofAgents('responses'),
  'agents chat completions': () => ofAgents('chat_completions'),
  'ag-ui': ofAgUI
}

const did = {}
for (const name of names.split(',')) {
  did[name] = {}
  for (const [feature, use] of Object.entries(clients[name]())) {
    if (only && only !== feature) continue
    try {
      did[name][feature] = await use()
    } catch (error) {
      did[name][feature] = String(error.stack ?? error)
    }
  }
}
console.log(JSON.stringify(did))
process.exit(0)
