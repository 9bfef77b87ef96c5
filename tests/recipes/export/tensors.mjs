// Runs exported folders through transformers.js on tensors: node tensors.mjs PACKAGES FOLDERS, a
// line of JSON in, {folder, inputs}, and one out, {name: {dims, data}}.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [packages, folders] = process.argv.slice(2);
const { AutoModel, Tensor, env } = createRequire(`${packages}/`)("@huggingface/transformers");
env.allowRemoteModels = false;
env.localModelPath = folders;
// what loading says is no answer
console.log = console.warn;
const models = {};
for await (const line of createInterface({ input: process.stdin })) {
  const { folder, inputs } = JSON.parse(line);
  models[folder] ??= await AutoModel.from_pretrained(folder, { dtype: "fp32" });
  const tensors = {};
  for (const [name, { dims, data }] of Object.entries(inputs))
    tensors[name] = new Tensor("int64", BigInt64Array.from(data, BigInt), dims);
  const answer = {};
  for (const [name, { dims, data }] of Object.entries(await models[folder](tensors)))
    answer[name] = { dims, data: Array.from(data) };
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
