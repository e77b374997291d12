#include "loop/rollout_writer.h"

#include <map>
#include <vector>

#include "loop/rollout_files.h"

namespace slime::loop {

RolloutWriter::RolloutWriter(const config::RunConfig& config, const RunFolder& folder,
                             const text::Tokenizer& tokenizer)
    : folder_(folder),
      tokenizer_(tokenizer),
      dump_path_(config.save_debug_rollout_data),
      writes_for_report_(!config.no_save_rollouts && !config.trains_on_rows()) {}

void RolloutWriter::write(int64_t step, const Collected& collected,
                          const train::TrainReport* report) const {
  if (!dump_path_.empty()) write_samples(numbered_path(dump_path_, step), collected.groups);
  if (!writes_for_report_) return;
  const auto texts = [this](const Sample& sample) {
    text::StreamDetokenizer stream(tokenizer_);
    std::vector<std::string> pieces;
    for (int64_t i = sample.prompt_length; i < static_cast<int64_t>(sample.tokens.size()); ++i) {
      pieces.push_back(stream.push(sample.tokens[static_cast<std::size_t>(i)]));
    }
    return pieces;
  };
  // By sample, of which several may have one ordinal; the trainer keeps the order of the groups.
  std::map<const Sample*, const std::vector<float>*> log_probs;
  if (report != nullptr) {
    std::size_t i = 0;
    for (const Group& group : collected.groups) {
      for (const Sample& sample : group.samples) log_probs[&sample] = &report->log_probs.at(i++);
    }
  }
  const auto train_log_probs = [&](const Sample& sample) {
    return log_probs.contains(&sample) ? *log_probs[&sample] : std::vector<float>{};
  };
  write_samples(folder_.rollouts(step), collected.groups,
                {.train_log_probs = train_log_probs, .token_texts = texts});
}

std::filesystem::path RolloutWriter::write_skipped(int64_t step, const Collected& collected) const {
  std::filesystem::path path = folder_.skipped(step);
  write_samples(path, collected.groups);
  return path;
}

}  // namespace slime::loop
