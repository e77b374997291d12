#pragma once

/// The files of src/report/page/ and src/report/trackers/, compiled into the program (cmake/slime_module.cmake, "page").

#include <string_view>

namespace slime::report {

/// The content of a file by its name. Throws BugError for a name that is not there.
std::string_view page_file(std::string_view name);

}  // namespace slime::report
