#include "cli/commands.h"

#include <array>

#include "cli/bench.h"
#include "cli/buffer.h"
#include "cli/chat_template.h"
#include "cli/data.h"
#include "cli/download.h"
#include "cli/dump.h"
#include "cli/generate.h"
#include "cli/grammar.h"
#include "cli/inspect.h"
#include "cli/ledger.h"
#include "cli/logprobs.h"
#include "cli/parse.h"
#include "cli/plan.h"
#include "cli/replay.h"
#include "cli/report.h"
#include "cli/router.h"
#include "cli/runs.h"
#include "cli/sandbox.h"
#include "cli/score.h"
#include "cli/serve.h"
#include "cli/session.h"
#include "cli/simulate.h"
#include "cli/steps.h"
#include "cli/tokenize.h"
#include "cli/train.h"
#include "cli/view.h"
#include "cli/worker.h"

namespace slime::cli {

std::span<const Command> commands() {
  static constexpr auto kCommands = std::to_array<Command>({
      {"train", "train a model: generate, score, learn, repeat", train},
      {"steps", "a run whose loop is a script's (Python: slime.start)", steps},
      {"replay", "train once more on what a run drew, and compare the weights", replay},
      {"train-async", "the same, with generation and training at the same time", train_async},
      {"ledger", "what became of every prompt and token of a run, proved", ledger},
      {"runs", "the runs of a folder and their branches: state, step, reward, settings", runs},
      {"dump", "the samples of any rollout of a run, JSON lines", dump},
      {"simulate", "what a run would be like on other devices: a prediction", simulate},
      {"plan", "layout, memory and messages of a run on many devices: a prediction", plan},
      {"bench", "speed on this machine, as JSON: the program slime-bench", bench},
      {"generate", "prompts to SGLang's response objects, JSON lines", generate},
      {"report", "a run directory as one HTML page", report},
      {"view", "runs as a page that grows with them: curves, samples, alarms", view},
      {"score", "a reward on responses, JSON lines", score},
      {"sandbox", "model-written code in bubblewrap, with limits", sandbox},
      {"tokenize", "text to token ids, JSON lines", tokenize},
      {"detokenize", "token ids to text, JSON lines", detokenize},
      {"chat-template", "chat messages to text and token ids, JSON lines", chat_template},
      {"parse", "outputs of models to messages with tool calls, JSON lines", parse},
      {"grammar", "texts that a schema, expression or grammar accepts, JSON lines", grammar},
      {"buffer", "finished rollouts between generators and a trainer, kept on the disk", buffer},
      {"data", "rows of a data set as a run would read them: tokens, lengths, what is left out",
       data},
      {"download", "models and data sets of Hugging Face's hub, by name", download},
      {"serve", "a model behind SGLang's and OpenAI's HTTP routes", serve},
      {"router", "requests to several servers: by load, by cache, by session", router},
      {"logprobs", "log-probs, entropies and best tokens of token sequences", logprobs},
      {"session", "engines that outlive their trainers: list them, end them", session},
      {"worker", "a rank of a run; slime train starts it", worker},
      {"inspect", "what a model directory, checkpoint or safetensors file holds", inspect},
  });
  return kCommands;
}

}  // namespace slime::cli
