#include "loop/row_evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "buffer/data_source.h"
#include "config/eval_config.h"
#include "core/error.h"
#include "setup/supervised.h"
#include "train/train_batch.h"

namespace slime::loop {

RowEvaluation::RowEvaluation(const config::RunConfig& config, const setup::ModelText& text)
    : config_(config) {
  const setup::SupervisedRows rows(config, text);
  for (const config::EvalSetConfig& set : config::eval_sets_of(config)) {
    const buffer::Dataset dataset = setup::load_eval_rows(config, text, set);
    Set& own = sets_.emplace_back();
    own.name = set.name;
    for (const auto& [reason, count] : dataset.left_out()) own.num_left_out += count;
    if (own.num_left_out > 0) {
      remarks_.push_back(fmt::format("evaluation {}: {} rows; left out: {}", set.name,
                                     dataset.size(),
                                     buffer::words_of_left_out(dataset.left_out())));
    }
    buffer::DataSource source(&dataset, {.samples_per_prompt = 1});
    for (Group& group : source.take(dataset.size())) {
      const auto reason = rows.complete(group);
      check(!reason, "rows of a data set that are left out were left out as it was read");
      own.rows.push_back(std::move(group.samples.front()));
    }
  }
}

int64_t RowEvaluation::num_rows() const {
  int64_t count = 0;
  for (const Set& set : sets_) count += static_cast<int64_t>(set.rows.size());
  return count;
}

report::EvalReport RowEvaluation::run(roles::Trainers& trainers,
                                      const std::atomic<bool>& stop) const {
  report::EvalReport report;
  const auto step_size = static_cast<std::size_t>(config_.samples_per_step());
  for (const Set& set : sets_) {
    double loss = 0, tokens = 0;
    for (std::size_t begin = 0; begin < set.rows.size(); begin += step_size) {
      if (stop.load()) return report;
      const std::size_t count = std::min(step_size, set.rows.size() - begin);
      const auto first = set.rows.begin() + static_cast<std::ptrdiff_t>(begin);
      std::vector<Sample> rows(first, first + static_cast<std::ptrdiff_t>(count));
      // Ranks divide whole steps: the last one is filled up with rows that do not count.
      while (rows.size() < step_size) rows.push_back(set.rows.front());
      train::TrainBatch batch = train::make_supervised_batch(rows);
      batch.is_scored_only = true;
      const train::TrainReport scored = trainers.train(batch);
      for (std::size_t i = 0; i < count; ++i) {
        const std::vector<uint8_t>& mask = batch.samples[i].loss_mask;
        check(scored.log_probs[i].size() == mask.size(), "every token of a response is scored");
        for (std::size_t t = 0; t < mask.size(); ++t) {
          if (mask[t] == 0) continue;
          loss -= scored.log_probs[i][t];
          tokens += 1;
        }
      }
    }
    const std::string prefix = "eval/" + set.name;
    report.metrics[prefix + "/loss"] = loss / tokens;
    report.metrics[prefix + "/tokens"] = tokens;
    report.metrics[prefix + "-left_out"] = static_cast<double>(set.num_left_out);
    report.scores.push_back({.name = set.name + "/loss", .mean_reward = loss / tokens});
  }
  return report;
}

}  // namespace slime::loop
