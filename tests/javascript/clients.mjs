// Clients of OpenAI's and Anthropic's APIs in JavaScript, pointed at a server of ours.
//
//   node clients.mjs URL CLIENT
//
// prints what the client did with each feature, as one JSON object. The server's model answers as
// `tests/server/test_javascript_clients.py` says.

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

const [url, client] = process.argv.slice(2)
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

async function failure(ask) {
  try {
    await ask()
  } catch (error) {
    return error.status ?? error.statusCode
  }
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
    error: () => failure(() => openai.chat.completions.create({ model: 'none', messages: [user('x')] }))
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
    error: () => failure(() => openai.responses.create({ model: 'none', input: 'x' }))
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
    error: () => failure(() => anthropic.messages.create({ ...ask, model: 'none', messages: [user('x')] }))
  }
}

function ofAISDK(model, unknown) {
  const more = {
    model,
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
    error: () => failure(() => generateText({ model: unknown, prompt: 'x', maxRetries: 0 }))
  }
}

function ofLangChain(model, unknown) {
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
    error: () => failure(() => unknown.invoke('x'))
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
  const agent = (model, tools = []) => new agents.Agent({ name: 'Sage', model, tools })
  const text = async (input, tools) => (await agents.run(agent('sage', tools), input)).finalOutput
  return {
    plain: () => text('one'),
    stream: async () => {
      const result = await agents.run(agent('sage'), 'two', { stream: true })
      return joined(result.toTextStream())
    },
    tools: () => text('weather', [weather]),
    again: async () => {
      const first = await agents.run(agent('sage'), 'think')
      return text([...first.history, user('six')])
    },
    error: () => failure(() => agents.run(agent('none'), 'x'))
  }
}

const local = { baseURL: `${url}/v1`, apiKey: 'none' }
const langchainOpenAI = (model, more = {}) =>
  new ChatOpenAI({ model, apiKey: 'none', configuration: local, maxRetries: 0, ...more })
const langchainAnthropic = (model) =>
  new ChatAnthropic({ model, apiKey: 'none', anthropicApiUrl: url, maxRetries: 0 })
const compatible = createOpenAICompatible({ name: 'sennit', baseURL: `${url}/v1` })
const clients = {
  openai: ofOpenAI,
  'openai responses': ofResponses,
  anthropic: ofAnthropic,
  'ai openai': () => ofAISDK(createOpenAI(local)('sage'), createOpenAI(local)('none')),
  'ai openai chat': () => ofAISDK(createOpenAI(local).chat('sage'), createOpenAI(local).chat('none')),
  'ai anthropic': () => ofAISDK(createAnthropic(local)('sage'), createAnthropic(local)('none')),
  'ai openai-compatible': () => ofAISDK(compatible('sage'), compatible('none')),
  'langchain openai': () => ofLangChain(langchainOpenAI('sage'), langchainOpenAI('none')),
  'langchain responses': () =>
    ofLangChain(
      langchainOpenAI('sage', { useResponsesApi: true }),
      langchainOpenAI('none', { useResponsesApi: true })
    ),
  'langchain anthropic': () => ofLangChain(langchainAnthropic('sage'), langchainAnthropic('none')),
  'agents responses': () => ofAgents('responses'),
  'agents chat_completions': () => ofAgents('chat_completions')
}

const did = {}
for (const [feature, use] of Object.entries(clients[client]())) {
  try {
    did[feature] = await use()
  } catch (error) {
    did[feature] = String(error.stack ?? error)
  }
}
console.log(JSON.stringify(did))
process.exit(0)
