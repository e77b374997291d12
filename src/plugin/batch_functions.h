#pragma once

/// Functions of the user's between the samples of a step and the batch that is trained.

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"
#include "core/sample.h"
#include "plugin/question_handler.h"
#include "train/train_batch.h"

namespace slime::plugin {

/// What --custom-reward-post-process-path returned, for each sample.
struct ProcessedRewards {
  std::vector<double> raw;      // for people
  std::vector<double> rewards;  // what trains, in the place of group normalisation
};

/// Throws net::FrameError for an answer that is none of `num_samples` samples.
ProcessedRewards read_processed_rewards(const Payload& answer, std::size_t num_samples);

/// The batch that --custom-convert-samples-to-train-data-path made of the samples of `groups`, in
/// their order. `without_place`: keys that nothing reads. Throws net::FrameError with what is wrong: a
/// list of another length than the samples, masks that do not fit their responses.
train::TrainBatch read_converted(const Payload& answer, const std::vector<Group>& groups,
                                 std::vector<std::string>& without_place);

class BatchFunctions {
 public:
  /// `place`: of a function among those of the hosts. References outlive the object.
  BatchFunctions(const config::RunConfig& config, Hosts& hosts, QuestionHandler& handler,
                 std::function<int(std::string_view hook, const std::string& path)> place);

  /// As make_batch (setup/train_config.h), with what the functions say. The thread of the loop waits.
  /// Throws ConfigError with the reason when one fails.
  train::TrainBatch make_batch(const std::vector<Group>& groups) const;

 private:
  Payload call(std::string_view flag, std::string_view hook, const std::string& path,
               const std::vector<Group>& groups) const;

  const config::RunConfig& config_;
  Hosts& hosts_;
  QuestionHandler& question_handler_;
  const std::function<int(std::string_view, const std::string&)> place_;
};

}  // namespace slime::plugin
