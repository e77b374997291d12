#include "loop/rank_tasks.h"

#include "core/error.h"

namespace slime::loop {

std::string to_frame(const TrainerTask& task) {
  std::string frame(1, static_cast<char>(task.kind));
  if (task.kind == RankTask::kTrain) frame += train::to_frame(task.share);
  return frame;
}

TrainerTask trainer_task_from(std::string_view frame) {
  check(!frame.empty(), "a task has a kind");
  constexpr std::string_view kKinds = "tpcr";
  check(kKinds.find(frame.front()) != kKinds.npos, "a task's kind is one of RankTask");
  TrainerTask task{static_cast<RankTask>(frame.front())};
  if (task.kind == RankTask::kTrain) {
    task.share = train::share_from_frame(frame.substr(1));
  } else {
    check(frame.size() == 1, "only a share follows the kind of a task");
  }
  return task;
}

std::string to_frame(const RankStart& start) {
  const json::object object{{"arguments", json::value_from(start.arguments)},
                            {"rank", start.rank},
                            {"port", start.port},
                            {"collective_milliseconds", start.collective_milliseconds},
                            {"num_rollouts", start.num_rollouts},
                            {"num_threads", start.num_threads},
                            {"checkpoint", start.checkpoint},
                            {"iteration", start.iteration},
                            {"loads_optimizer", start.loads_optimizer}};
  return static_cast<char>(RankTask::kStart) + json::serialize(object);
}

RankStart rank_start_from(std::string_view frame) {
  if (!frame.starts_with(static_cast<char>(RankTask::kStart)))
    throw ConfigError("the controller's first task says what the worker is to become");
  const json::value value = parse_json(frame.substr(1), "the controller's first task");
  try {
    return {.arguments = json::value_to<std::vector<std::string>>(value.at("arguments")),
            .rank = value.at("rank").to_number<int>(),
            .port = value.at("port").to_number<int>(),
            .collective_milliseconds = value.at("collective_milliseconds").to_number<int64_t>(),
            .num_rollouts = value.at("num_rollouts").to_number<int64_t>(),
            .num_threads = value.at("num_threads").to_number<int>(),
            .checkpoint = json::value_to<std::string>(value.at("checkpoint")),
            .iteration = value.at("iteration").to_number<int64_t>(),
            .loads_optimizer = value.at("loads_optimizer").as_bool()};
  } catch (const std::exception&) {  // a field that is missing or of another type
    throw ConfigError("the controller's first task says what the worker is to become");
  }
}

comm::ParallelLayout layout_of(const config::ParallelFlags& config) {
  return {.dp = static_cast<int>(config.data_parallel_size()),
          .tp = static_cast<int>(config.tensor_model_parallel_size),
          .pp = static_cast<int>(config.pipeline_model_parallel_size),
          .cp = static_cast<int>(config.context_parallel_size),
          .ep = static_cast<int>(config.expert_model_parallel_size),
          .etp = static_cast<int>(config.expert_tensor_parallel_size)};
}

}  // namespace slime::loop
