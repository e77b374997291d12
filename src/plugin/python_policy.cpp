#include "plugin/python_policy.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>
#include <variant>
#include <vector>

#include "plugin/batch_words.h"

namespace slime::plugin {
namespace {

/// A metric's numbers, one for each token.
Tensor metric_column(const json::value& word, const Columns& columns, int64_t num_tokens,
                     at::ScalarType dtype, std::string_view name) {
  const json::object* object = word.if_object();
  const json::value* place = object == nullptr ? nullptr : object->if_contains("$column");
  const std::vector<float>* numbers = nullptr;
  if (place != nullptr && place->is_int64() && place->get_int64() >= 0 &&
      static_cast<std::size_t>(place->get_int64()) < columns.size())
    numbers =
        std::get_if<std::vector<float>>(&columns[static_cast<std::size_t>(place->get_int64())]);
  if (numbers == nullptr || static_cast<int64_t>(numbers->size()) != num_tokens) {
    throw FunctionError(
        fmt::format("--custom-tis-function-path: the metric {} should have a number for each of {} "
                    "response tokens",
                    name, num_tokens));
  }
  return at::tensor(*numbers, at::kFloat).to(dtype);
}

class PythonPolicy {
 public:
  PythonPolicy(TrainerHost& host, SharedTensors& tensors, const PythonPolicyConfig& config)
      : host_(&host), tensors_(&tensors), config_(config) {}

  algo::PolicyFunctions operator()(const train::TrainBatch& batch,
                                   const train::MicroBatch& micro_batch,
                                   std::function<Tensor(const Tensor&)> weights) const {
    algo::PolicyFunctions functions;
    const std::string subject = subject_of(batch, micro_batch.samples);
    json::array total_lengths, response_lengths;
    for (const int64_t i : micro_batch.samples) {
      total_lengths.emplace_back(batch.samples[i].total_length());
      response_lengths.emplace_back(batch.samples[i].response_length());
    }
    const json::object lengths{{"total_lengths", std::move(total_lengths)},
                               {"response_lengths", std::move(response_lengths)}};
    if (config_.correction) {
      functions.correct = [own = *this, subject, lengths, weights = std::move(weights)](
                              const Tensor& loss_T, const algo::MismatchTokens& in) {
        return own.correct(subject, lengths, weights, loss_T, in);
      };
    }
    if (config_.reducer) {
      functions.reduce = [own = *this, subject, lengths](const Tensor& loss_T,
                                                         const Tensor& kept_T) {
        return own.reduce(subject, lengths, loss_T, kept_T);
      };
    }
    return functions;
  }

 private:
  algo::CorrectedTokens correct(const std::string& subject, json::object arguments,
                                const std::function<Tensor(const Tensor&)>& weights,
                                const Tensor& loss_T, const algo::MismatchTokens& in) const {
    tensors_->begin();
    const auto dtype = loss_T.scalar_type();
    const SharedTensor out_loss = tensors_->space(loss_T.sizes(), dtype);
    const SharedTensor out_masks = tensors_->space(loss_T.sizes(), dtype);
    const SharedTensor out_gradient = tensors_->space(loss_T.sizes(), dtype);
    const SharedTensor gradient = tensors_->space(loss_T.sizes(), dtype);
    arguments["pg_loss"] = tensors_->put(loss_T).word;
    arguments["train_log_probs"] = rows_word(in.trainer_T, *tensors_);
    arguments["rollout_log_probs"] = rows_word(in.engine_T, *tensors_);
    arguments["loss_masks"] = rows_word(in.trained_T.to(at::kInt), *tensors_);
    arguments["out_pg_loss"] = out_loss.word;
    arguments["out_loss_masks"] = out_masks.word;
    const TrainerHost::Returned returned =
        host_->call(*config_.correction, subject, std::move(arguments));
    algo::CorrectedTokens corrected;
    corrected.loss_T = copy_on_host(out_loss.tensor);
    corrected.kept_T = copy_on_host(out_masks.tensor);
    corrected.weight_T = weights(corrected.kept_T);
    if (const json::value* metrics = returned.value.if_contains("metrics");
        metrics != nullptr && metrics->is_object()) {
      for (const auto& metric : metrics->get_object()) {
        corrected.metrics.emplace_back(
            std::string(metric.key()),
            metric_column(metric.value(), returned.columns, loss_T.size(0), dtype, metric.key()));
      }
    }
    // The reducer may have been called meanwhile: what is written lies in memory of the call before.
    corrected.backward = [this_host = host_, hook = *config_.correction, subject, id = returned.id,
                          out_gradient, gradient](const Tensor& gradient_T) {
      out_gradient.tensor.copy_(gradient_T);
      this_host->call(hook, subject,
                      {{"backward", id},
                       {"out_gradient", out_gradient.word},
                       {"pg_loss_gradient", gradient.word}});
      return copy_on_host(gradient.tensor);
    };
    return corrected;
  }

  /// Gives out more memory behind that of a correction, whose gradient is still to come.
  algo::ReducedTokens reduce(const std::string& subject, json::object arguments,
                             const Tensor& loss_T, const Tensor& kept_T) const {
    if (!config_.correction) tensors_->begin();
    const SharedTensor gradient = tensors_->space(loss_T.sizes(), loss_T.scalar_type());
    arguments["values"] = tensors_->put(loss_T).word;
    arguments["values_gradient"] = gradient.word;
    arguments["loss_masks"] = rows_word(kept_T.to(loss_T.scalar_type()), *tensors_);
    arguments["calculate_per_token_loss"] = config_.calculate_per_token_loss;
    const TrainerHost::Returned returned =
        host_->call(*config_.reducer, subject, std::move(arguments));
    const json::value* sum = returned.value.if_contains("value");
    if (sum == nullptr || !sum->is_number())
      throw FunctionError("the plug-in host answered without the reducer's number");
    return {sum->to_number<double>(), copy_on_host(gradient.tensor)};
  }

  TrainerHost* host_;
  SharedTensors* tensors_;
  PythonPolicyConfig config_;
};

}  // namespace

PolicyFunctionsFn make_python_policy(TrainerHost& host, SharedTensors& tensors,
                                     const PythonPolicyConfig& config) {
  return PythonPolicy(host, tensors, config);
}

}  // namespace slime::plugin
