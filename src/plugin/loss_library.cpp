#include "plugin/loss_library.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <slime/loss.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/error.h"
#include "plugin/batch_words.h"
#include "plugin/trainer_host.h"

namespace slime::plugin {
namespace {

using LossEntry = decltype(&slime_loss);
using VersionEntry = decltype(&slime_loss_version);

void* entry_of(void* library, const std::string& file, const char* name) {
  void* entry = ::dlsym(library, name);
  if (entry == nullptr) {
    throw ConfigError(fmt::format(
        "--custom-loss-library {}: defines no {}; in C++ include slime/loss.h, which declares it "
        "extern \"C\"",
        file, name));
  }
  return entry;
}

/// A number or a switch; others are the library's own default.
double flag_of(const void* context, const char* name, double otherwise) {
  const json::value* value = static_cast<const json::object*>(context)->if_contains(name);
  if (value == nullptr) return otherwise;
  if (value->is_bool()) return value->get_bool() ? 1 : 0;
  return value->is_number() ? value->to_number<double>() : otherwise;
}

void add_metric(void* context, const char* name, double sum) {
  (*static_cast<algo::MetricSums*>(context))[name] += sum;
}

/// float64, contiguous; undefined stays so.
Tensor doubles(const Tensor& x_T) {
  return x_T.defined() ? x_T.detach().to(at::kDouble).contiguous() : Tensor();
}

const double* pointer(const Tensor& x_T) {
  return x_T.defined() ? x_T.const_data_ptr<double>() : nullptr;
}

/// The columns of samples and tokens that the trainer has no tensors of.
struct SampleColumns {
  std::vector<int64_t> prompt_lengths, indices, groups, token_ids;
  std::vector<double> rewards, raw_rewards;
};

SampleColumns sample_columns(const train::LossInput& in) {
  SampleColumns out;
  for (const int64_t i : in.micro_batch.samples) {
    const train::TrainSample& sample = in.batch.samples[i];
    out.prompt_lengths.push_back(sample.prompt_length);
    out.indices.push_back(sample.ordinal);
    out.groups.push_back(sample.group);
    out.rewards.push_back(sample.reward);
    out.raw_rewards.push_back(sample.raw_reward);
    out.token_ids.insert(out.token_ids.end(), sample.tokens.begin() + sample.prompt_length,
                         sample.tokens.end());
  }
  return out;
}

class LossLibrary {
 public:
  LossLibrary(std::string file, LossEntry entry, json::object flags)
      : file_(std::move(file)),
        entry_(entry),
        flags_(std::make_shared<const json::object>(std::move(flags))) {}

  train::LossResult operator()(const train::LossInput& in) const {
    const algo::PolicyColumns& columns = in.columns;
    const SampleColumns samples = sample_columns(in);
    const Tensor starts = columns.starts.contiguous();
    const Tensor masks_T = columns.trained_T.to(at::kByte).contiguous();
    const Tensor log_probs_T = doubles(columns.logprob_T);
    const Tensor old_T = columns.old_T.defined() ? doubles(columns.old_T) : log_probs_T;
    const Tensor weights_T = doubles(columns.weight_T), entropies_T = doubles(columns.entropy_T),
                 ref_T = doubles(columns.ref_T), engine_T = doubles(columns.engine_T),
                 teacher_T = doubles(in.teacher_T), values_T = doubles(in.value_T),
                 advantages_T = doubles(columns.advantage_T), returns_T = doubles(in.return_T);
    const slime_loss_input input{
        .num_samples = static_cast<int64_t>(samples.indices.size()),
        .num_tokens = log_probs_T.size(0),
        .starts = starts.const_data_ptr<int64_t>(),
        .prompt_lengths = samples.prompt_lengths.data(),
        .sample_indices = samples.indices.data(),
        .group_indices = samples.groups.data(),
        .rewards = samples.rewards.data(),
        .raw_rewards = samples.raw_rewards.data(),
        .token_ids = samples.token_ids.data(),
        .loss_masks = masks_T.const_data_ptr<uint8_t>(),
        .weights = pointer(weights_T),
        .log_probs = pointer(log_probs_T),
        .entropies = pointer(entropies_T),
        .old_log_probs = pointer(old_T),
        .ref_log_probs = pointer(ref_T),
        .rollout_log_probs = pointer(engine_T),
        .teacher_log_probs = pointer(teacher_T),
        .values = pointer(values_T),
        .advantages = pointer(advantages_T),
        .returns = pointer(returns_T),
        .flag = flag_of,
        .flags = flags_.get(),
    };
    const Tensor log_prob_gradient_T = at::zeros_like(log_probs_T);
    const Tensor entropy_gradient_T =
        in.has_entropy_gradient ? at::zeros_like(log_probs_T) : Tensor();
    train::LossResult result;
    slime_loss_output output{.loss = 0,
                             .log_prob_gradient = log_prob_gradient_T.mutable_data_ptr<double>(),
                             .entropy_gradient = in.has_entropy_gradient
                                                     ? entropy_gradient_T.mutable_data_ptr<double>()
                                                     : nullptr,
                             .metric = add_metric,
                             .metrics = &result.metrics,
                             .error = {}};
    call(in, input, output);
    check_finite(in, "the loss", std::span(&output.loss, 1));
    check_finite(in, "the gradient of the log-probs", numbers(log_prob_gradient_T));
    if (in.has_entropy_gradient)
      check_finite(in, "the gradient of the entropies", numbers(entropy_gradient_T));
    for (const auto& [name, sum] : result.metrics) check_finite(in, name, std::span(&sum, 1));
    const auto dtype = columns.logprob_T.scalar_type();
    result.loss = output.loss;
    result.logprob_gradient_T = log_prob_gradient_T.to(dtype);
    if (in.has_entropy_gradient) result.entropy_gradient_T = entropy_gradient_T.to(dtype);
    return result;
  }

 private:
  static std::span<const double> numbers(const Tensor& x_T) {
    return {x_T.const_data_ptr<double>(), static_cast<std::size_t>(x_T.numel())};
  }

  [[noreturn]] void fail(const train::LossInput& in, const std::string& why) const {
    throw FunctionError(fmt::format("--custom-loss-library {}, {}: {}", file_,
                                    subject_of(in.batch, in.micro_batch.samples), why));
  }

  void call(const train::LossInput& in, const slime_loss_input& input,
            slime_loss_output& output) const {
    int32_t status = 0;
    try {
      status = entry_(&input, &output);
    } catch (const std::exception& error) {
      fail(in, error.what());
    }
    if (status == 0) return;
    output.error[sizeof output.error - 1] = '\0';
    fail(in, output.error[0] != '\0' ? std::string(output.error)
                                     : fmt::format("slime_loss returned {}", status));
  }

  void check_finite(const train::LossInput& in, const std::string& what,
                    std::span<const double> values) const {
    const auto bad = std::ranges::find_if(values, [](double x) { return !std::isfinite(x); });
    if (bad == values.end()) return;
    if (values.size() == 1) fail(in, fmt::format("{} is {}", what, *bad));
    fail(in, fmt::format("{} is {} at token {}", what, *bad, bad - values.begin()));
  }

  std::string file_;
  LossEntry entry_;
  std::shared_ptr<const json::object> flags_;
};

}  // namespace

train::LossFn load_loss_library(const std::string& file, json::object flags) {
  const std::string path = std::filesystem::absolute(file).string();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw ConfigError(fmt::format("--custom-loss-library {}: {}", file, ::dlerror()));
  const auto version =
      reinterpret_cast<VersionEntry>(entry_of(library, file, "slime_loss_version"))();
  if (version != SLIME_LOSS_VERSION) {
    throw ConfigError(
        fmt::format("--custom-loss-library {}: it was built with version {} of slime/loss.h, this "
                    "program has {}; build it again",
                    file, version, SLIME_LOSS_VERSION));
  }
  return LossLibrary(file, reinterpret_cast<LossEntry>(entry_of(library, file, "slime_loss")),
                     std::move(flags));
}

}  // namespace slime::plugin
