#include "cli/commands.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/bench.h"
#include "cli/buffer.h"
#include "cli/chat.h"
#include "cli/chat_template.h"
#include "cli/check.h"
#include "cli/completion.h"
#include "cli/data.h"
#include "cli/doctor.h"
#include "cli/download.h"
#include "cli/dump.h"
#include "cli/eval.h"
#include "cli/export.h"
#include "cli/generate.h"
#include "cli/grammar.h"
#include "cli/inspect.h"
#include "cli/ledger.h"
#include "cli/logprobs.h"
#include "cli/options.h"
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
#include "cli/tinker.h"
#include "cli/tokenize.h"
#include "cli/train.h"
#include "cli/view.h"
#include "cli/worker.h"

namespace slime::cli {

namespace {

using enum CommandGroup;

/// What people begin with.
constexpr auto kFirst = std::to_array<std::string_view>({"train", "chat", "serve", "eval", "view"});

std::string_view title_of(CommandGroup group) {
  switch (group) {
    case kTraining:
      return "Train";
    case kModels:
      return "Use a model";
    case kRuns:
      return "Look at runs";
    case kData:
      return "Data, rewards, text";
    case kPlanning:
      return "Plan";
    case kMachine:
      return "This machine";
    case kOther:
      return "Other";
    case kInternal:
      return "";
  }
  return "";
}

}  // namespace

std::span<const Command> commands() {
  static constexpr auto kCommands = std::to_array<Command>({
      {"train", "train a model: generate, score, learn, repeat", train, kTraining},
      {"train-async", "the same, with generation and training at the same time", train_async,
       kTraining},
      {"tinker", "models trained and sampled by requests: Tinker's client, slime.start", tinker,
       kTraining},
      {"replay", "train once more on what a run drew, compare the weights", replay, kTraining},
      {"chat", "a conversation with a model, in the terminal or a pipe", chat, kModels},
      {"eval", "scores of a model: mean, pass@k, intervals, comparisons", eval, kModels},
      {"export", "the model of a run as a directory, with a card", export_model, kModels},
      {"serve", "a model behind SGLang's and OpenAI's HTTP routes", serve, kModels},
      {"router", "requests to several servers: by load, cache, session", router, kModels},
      {"generate", "prompts to SGLang's response objects, JSON lines", generate, kModels},
      {"logprobs", "log-probs, entropies and best tokens of sequences", logprobs, kModels},
      {"inspect", "what a model directory, checkpoint or weight file holds", inspect, kModels},
      {"download", "models and data sets of Hugging Face's hub, by name", download, kModels},
      {"runs", "the runs of a folder: state, step, reward, what differs", runs, kRuns},
      {"view", "runs as a page that grows with them: curves, samples, alarms", view, kRuns},
      {"report", "a run directory as one HTML page", report, kRuns},
      {"dump", "the samples of any rollout of a run, JSON lines", dump, kRuns},
      {"ledger", "what became of every prompt and token of a run, proved", ledger, kRuns},
      {"data", "rows as a run would read them: tokens, lengths, omissions", data, kData},
      {"score", "a reward on responses, JSON lines", score, kData},
      {"tokenize", "text to token ids, JSON lines", tokenize, kData},
      {"detokenize", "token ids to text, JSON lines", detokenize, kData},
      {"chat-template", "chat messages to text and token ids, JSON lines", chat_template, kData},
      {"parse", "outputs of models to messages with tool calls, JSON lines", parse, kData},
      {"grammar", "texts that a schema, expression or grammar accepts", grammar, kData},
      {"sandbox", "model-written code in bubblewrap, with limits", sandbox, kData},
      {"buffer", "finished rollouts between generators and a trainer", buffer, kData},
      {"plan", "layout, memory and messages of a run: a prediction", plan, kPlanning},
      {"simulate", "what a run would be like on other devices: a prediction", simulate, kPlanning},
      {"doctor", "whether this machine, and then a run, is ready", doctor, kMachine},
      {"check", "a device beside references, with a report to post", check_command, kMachine},
      {"bench", "speed on this machine, as JSON: the program slime-bench", bench, kMachine},
      {"session", "engines that outlive their trainers: list them, end them", session, kMachine},
      {"completion", "a script for the Tab key of bash, zsh or fish", completion, kMachine},
      {"steps", "a run whose loop is a script's (Python: slime.start)", steps, kInternal},
      {"worker", "a rank of a run; slime train starts it", worker, kInternal},
  });
  return kCommands;
}

std::vector<help::Verb> verbs() {
  std::vector<help::Verb> list;
  for (const Command& command : commands()) {
    list.push_back({.name = command.name,
                    .summary = command.summary,
                    .section = title_of(command.group),
                    .is_first = std::ranges::find(kFirst, command.name) != kFirst.end()});
  }
  // Those that people begin with come in their own order.
  std::vector<help::Verb> ordered;
  for (const std::string_view name : kFirst)
    for (const help::Verb& verb : list)
      if (verb.name == name) ordered.push_back(verb);
  for (const help::Verb& verb : list)
    if (!verb.is_first) ordered.push_back(verb);
  return ordered;
}

help::Manual manual_of(const Command& command) {
  if (command.run == train || command.run == train_async)
    return train_manual(std::string("slime ") + command.name);
  const std::vector<std::string> words{std::string(kHelpJson)};
  try {
    command.run(words);
  } catch (const ManualAsked& asked) {
    return asked.manual;
  } catch (const std::exception&) {
    // A program of its own, which is not built.
  }
  return {
      .command = std::string("slime ") + command.name, .summary = command.summary, .options = {}};
}

}  // namespace slime::cli
