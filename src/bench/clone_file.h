#pragma once

#include <string>

namespace slime::bench {

/// `path` from the working directory or, where there is no such file, from the clone that this
/// program was built in; as it is where it is in neither.
std::string file_of_clone(const std::string& path);

}  // namespace slime::bench
