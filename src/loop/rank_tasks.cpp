#include "loop/rank_tasks.h"

namespace slime::loop {

json::object to_json(const RankStart& start) {
  return {{"arguments", json::value_from(start.arguments)},
          {"rank", start.rank},
          {"size", start.size},
          {"port", start.port},
          {"collective_milliseconds", start.collective_milliseconds},
          {"num_rollouts", start.num_rollouts},
          {"num_threads", start.num_threads},
          {"checkpoint", start.checkpoint},
          {"iteration", start.iteration},
          {"loads_optimizer", start.loads_optimizer}};
}

RankStart rank_start_from(const json::value& value) {
  return {.arguments = json::value_to<std::vector<std::string>>(value.at("arguments")),
          .rank = value.at("rank").to_number<int>(),
          .size = value.at("size").to_number<int>(),
          .port = value.at("port").to_number<int>(),
          .collective_milliseconds = value.at("collective_milliseconds").to_number<int64_t>(),
          .num_rollouts = value.at("num_rollouts").to_number<int64_t>(),
          .num_threads = value.at("num_threads").to_number<int>(),
          .checkpoint = json::value_to<std::string>(value.at("checkpoint")),
          .iteration = value.at("iteration").to_number<int64_t>(),
          .loads_optimizer = value.at("loads_optimizer").as_bool()};
}

}  // namespace slime::loop
