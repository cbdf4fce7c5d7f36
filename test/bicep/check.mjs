// Checks the Bicep example: its grammar, and that it says the same as the ARM template beside it.
// Bicep's own compiler is not needed.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { Language, Parser } from 'web-tree-sitter'

const require = createRequire(import.meta.url)
await Parser.init()
const parser = new Parser()
parser.setLanguage(await Language.load(
  require.resolve('tree-sitter-bicep/tree-sitter-bicep.wasm')))
const examples = new URL('../../examples/', import.meta.url)
const text = readFileSync(new URL('bicep/flexnode.bicep', examples), 'utf8')
const arm = JSON.parse(readFileSync(new URL('arm/flexnode.json', examples), 'utf8'))

const tree = parser.parse(text)
if (process.argv.includes('--tree')) console.log(tree.rootNode.toString())
assert(!tree.rootNode.hasError, 'flexnode.bicep does not parse')
assert(parser.parse(text.replace('name: nodeName', 'name nodeName')).rootNode.hasError,
  'the grammar does not find a colon that is missing')

// value is an expression as a template has it.
function value (node) {
  switch (node.type) {
    case 'object': return Object.fromEntries(node.namedChildren
      .filter(c => c.type === 'object_property')
      .map(c => [c.namedChildren[0].text, value(c.namedChildren.at(-1))]))
    case 'string': return node.text.slice(1, -1)
    case 'boolean': return node.text === 'true'
    case 'number': return Number(node.text)
    case 'identifier': return `[parameters('${node.text}')]`
    case 'primary_expression': case 'expression': return value(node.namedChildren[0])
    default: throw new Error(`unexpected ${node.type}: ${node.text}`)
  }
}

const statements = tree.rootNode.namedChildren
const parameters = statements.filter(n => n.type === 'parameter_declaration')
  .map(n => n.namedChildren.find(c => c.type === 'identifier').text)
assert.deepEqual(parameters.sort(), Object.keys(arm.parameters).sort())

const declared = statements.filter(n => n.type === 'resource_declaration').at(-1)
const [resource] = arm.resources
assert.equal(declared.namedChildren.find(c => c.type === 'string').text,
  `'${resource.type}@${resource.apiVersion}'`)
const body = declared.namedChildren.find(c => c.type === 'object')
const properties = body.namedChildren.find(c => c.namedChildren[0].text === 'properties')
assert.deepEqual(value(properties.namedChildren.at(-1)), resource.properties)

const action = arm.outputs.configUrl.value.match(/\b(list\w+)\(/)[1]
assert(text.includes(`node.${action}().configUrl`), `the output does not call ${action}`)
