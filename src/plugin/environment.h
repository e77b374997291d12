#pragma once

/// The environment of a run (--environment), opened before the run begins.
///
/// An environment gives prompts, generates and scores. Its connector is Python (python/slime/environments). A
/// process of --plugin-python writes the rows of its tasks into the cache folder; from then on the run is one with
/// --prompt-data and a generate function. What cannot work (a package that is not installed, an environment that
/// nobody knows) is refused here, before a model is loaded.

#include "config/parse_flags.h"

namespace slime::plugin {

/// Sets the flags that --environment stands for; nothing without it. Throws ConfigError.
void open_environment(config::ParsedFlags& flags);

}  // namespace slime::plugin
