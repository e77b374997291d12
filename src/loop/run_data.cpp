#include "loop/run_data.h"

#include <deque>
#include <utility>

#include "buffer/prompt_stream.h"
#include "config/users_functions.h"
#include "plugin/users_prompts.h"

namespace slime::loop {
namespace {

buffer::DataSourceConfig order_of(const config::RunConfig& config) {
  return {.samples_per_prompt = config.n_samples_per_prompt,
          .shuffle = config.rollout_shuffle && !config::has_users_data_source(config),
          .seed = config.rollout_seed};
}

class FilePrompts final : public PromptOrigin {
 public:
  FilePrompts(const config::RunConfig& config, std::optional<buffer::Dataset> rows)
      : rows_(std::move(rows)), prompts_(rows_ ? &*rows_ : nullptr, order_of(config)) {}

  buffer::DataSource& prompts() override { return prompts_; }
  const std::optional<buffer::Dataset>& rows() const override { return rows_; }
  std::optional<buffer::Dataset> give_rows() override { return std::exchange(rows_, std::nullopt); }

 private:
  std::optional<buffer::Dataset> rows_;
  buffer::DataSource prompts_;
};

class StreamPrompts final : public PromptOrigin {
 public:
  StreamPrompts(const config::RunConfig& config, const setup::ModelText& text)
      : stream_(setup::stream_prompts(config, text)), prompts_(*stream_, order_of(config)) {}

  buffer::DataSource& prompts() override { return prompts_; }

 private:
  const std::unique_ptr<buffer::PromptStream> stream_;
  buffer::DataSource prompts_;
};

class PromptsOfUser final : public PromptOrigin {
 public:
  PromptsOfUser(const config::RunConfig& config, std::unique_ptr<plugin::UsersPrompts> users)
      : users_(std::move(users)), prompts_(*users_, order_of(config)) {}

  buffer::DataSource& prompts() override { return prompts_; }
  /// What a class of the user's gave out stays given out.
  bool can_go_back() const override { return false; }
  void load(int64_t step, const std::set<int64_t>& under_way) override {
    const std::deque<Group>& waiting = prompts_.waiting();
    users_->load(step, {waiting.begin(), waiting.end()}, under_way);
  }
  void save(int64_t step) override { users_->save(step); }
  void add_open_groups(json::object& state, const std::vector<Group>& open) const override {
    json::array ordinals;
    for (const Group& group : open) ordinals.push_back(group.ordinal);
    state["not_given_back"] = std::move(ordinals);
  }

 private:
  const std::unique_ptr<plugin::UsersPrompts> users_;
  buffer::DataSource prompts_;
};

}  // namespace

const std::optional<buffer::Dataset>& PromptOrigin::rows() const {
  static const std::optional<buffer::Dataset> none;
  return none;
}

std::unique_ptr<PromptOrigin> open_prompts(const config::RunConfig& config,
                                           const setup::ModelText& text,
                                           std::optional<buffer::Dataset> kept) {
  if (config.streaming_data) return std::make_unique<StreamPrompts>(config, text);
  const bool has_rows = !config.prompt_data.empty() && !config.disable_rollout_global_dataset;
  if (has_rows && !kept) kept = setup::load_prompts(config, text);
  return std::make_unique<FilePrompts>(config, std::move(kept));
}

std::unique_ptr<PromptOrigin> open_users_prompts(const config::RunConfig& config,
                                                 const setup::ModelText& text,
                                                 plugin::Plugins& plugins) {
  return std::make_unique<PromptsOfUser>(config, plugins.prompts(text));
}

}  // namespace slime::loop
