#include "loop/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "config/users_functions.h"
#include "core/error.h"
#include "loop/changed_settings.h"
#include "loop/session_settings.h"
#include "roles/engine_workers_config.h"
#include "roles/kept_engines.h"

namespace slime::loop {

std::vector<std::string> open_session(Stations& run) {
  const config::RunConfig& config = run.config;
  if (config.rollout_session_id.get().empty() || !config.generates()) return {};
  const auto& places = run.launch.hosts.placement;
  for (int engine = 0; config.keeps_engines() && engine < config.num_engine_workers; ++engine) {
    if (places.of_engine(engine).node != 0)
      throw ConfigError(fmt::format(
          "--rollout-session-id {}: engine {} would be on another host, where nobody keeps it; "
          "engines of a session are on the trainer's",
          config.rollout_session_id.get(), engine));
  }
  auto session = std::make_unique<roles::KeptEngines>(roles::kept_engines_config(config));
  const json::object settings = settings_of(config);
  std::vector<std::string> notes;
  if (session->left()) {
    try {
      check_session_settings(session->left()->settings, settings, config.rollout_session_id);
    } catch (const ConfigError&) {
      if (session->has_engines()) throw;
      session->forget_left();  // steps alone, which nobody waits with
      notes.emplace_back(
          "session: generated steps that no checkpoint has are of other settings, and are "
          "generated "
          "again");
    }
  }
  session->take(settings, run.records.folder.root() / "unsaved");
  if (const std::string kept = session->attach(); !kept.empty())
    notes.push_back(fmt::format("session {}: {} go on from the trainer before this one",
                                config.rollout_session_id.get(), kept));
  run.topology.session = std::move(session);
  return notes;
}

std::vector<std::string> replay_unsaved(Stations& run) {
  if (!run.topology.session) return {};
  auto unsaved = std::make_unique<UnsavedSteps>(run.topology.session->unsaved());
  const int64_t first = run.course.schedule.first_step;
  auto [groups, num_steps, damage] = unsaved->read(first);
  const bool has_own_loop =
      config::has_users_rollout(run.config) || !run.data.origin->can_go_back();
  std::vector<std::string> notes;
  if (!damage.empty())
    notes.push_back(
        fmt::format("session: {}; that step and those behind it are generated again", damage));
  if (!groups.empty() && has_own_loop) {
    notes.push_back(
        fmt::format("session: {} steps that no checkpoint has are generated again, by your own "
                    "functions",
                    num_steps));
  } else if (!groups.empty()) {
    const std::size_t num_groups = groups.size();
    const std::set<int64_t> ordinals =
        give_again(std::move(groups), run.data.prompts(), *run.data.outcomes);
    notes.push_back(ordinals.empty()
                        ? "session: generated steps are of other prompts than this run's, and are "
                          "not trained"
                        : fmt::format("session: {} groups of {} that no checkpoint has are trained "
                                      "as they were generated",
                                      num_groups,
                                      num_steps == 1 ? fmt::format("step {}", first)
                                                     : fmt::format("steps {} to {}", first,
                                                                   first + num_steps - 1)));
  }
  if (!has_own_loop) run.data.unsaved = std::move(unsaved);
  return notes;
}

}  // namespace slime::loop
