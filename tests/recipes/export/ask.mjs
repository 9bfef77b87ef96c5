// Asks exported folders through transformers.js: node ask.mjs PACKAGES FOLDERS < asked > answers
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [packages, folders] = process.argv.slice(2);
const { env, pipeline } = createRequire(`${packages}/`)("@huggingface/transformers");
env.allowRemoteModels = false;
env.localModelPath = folders;
const answers = [];
for (const { folder, task, dtype, inputs, options } of JSON.parse(readFileSync(0, "utf-8"))) {
  const ask = await pipeline(task, folder, { dtype });
  const answer = await ask(...inputs, options);
  answers.push(answer.tolist ? answer.tolist() : answer);
}
console.log(JSON.stringify(answers));
