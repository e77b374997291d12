#include "buffer/arrow_rows.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <exception>
#include <type_traits>
#include <utility>

#include "buffer/arrow/arrow_library.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

struct Library {
  SlimeRowsCount count = nullptr;
  SlimeRowsRead read = nullptr;
  SlimeBytesOpen open_bytes = nullptr;
  SlimeBytesRead read_bytes = nullptr;
  SlimeBytesClose close_bytes = nullptr;
  std::string problem;
};

std::filesystem::path library_path() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path() / "libslime_arrow.so";
}

Library load() {
  Library library;
  void* handle = ::dlopen(library_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    library.problem = fmt::format(
        "this form needs libslime_arrow.so beside the program ({}); it is built where "
        "-DSLIME_ARROW names the folder of the pyarrow package. Without it, pandas converts: "
        "read_parquet(path).to_json(path, orient=\"records\", lines=True)",
        why != nullptr ? why : "not found");
    return library;
  }
  bool is_whole = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    is_whole = is_whole && function != nullptr;
  };
  find(library.count, kSlimeRowsCount);
  find(library.read, kSlimeRowsRead);
  find(library.open_bytes, kSlimeBytesOpen);
  find(library.read_bytes, kSlimeBytesRead);
  find(library.close_bytes, kSlimeBytesClose);
  if (!is_whole)
    library.problem = library_path().string() + ": is of another version of this program";
  return library;
}

const Library& library() {
  static const Library kLibrary = load();
  if (!kLibrary.problem.empty()) throw ConfigError(kLibrary.problem);
  return kLibrary;
}

/// A row on its way through the library, which knows no exceptions.
struct Visit {
  const std::function<bool(std::string_view)>* on_row;
  std::exception_ptr thrown;
};

bool visit_row(void* context, const char* json, std::size_t size) {
  auto& visit = *static_cast<Visit*>(context);
  try {
    return (*visit.on_row)(std::string_view(json, size));
  } catch (...) {
    visit.thrown = std::current_exception();
    return false;
  }
}

void check_outcome(const char* problem, const std::filesystem::path& path) {
  if (problem != nullptr) throw ConfigError(fmt::format("{}: {}", path.string(), problem));
}

}  // namespace

void require_arrow_library() { library(); }

int64_t count_arrow_rows(const std::filesystem::path& path, const std::string& form) {
  int64_t num_rows = 0;
  check_outcome(library().count(path.c_str(), form.c_str(), &num_rows), path);
  return num_rows;
}

void read_arrow_rows(const std::filesystem::path& path, const std::string& form, int64_t first,
                     int64_t last, const std::function<bool(std::string_view json)>& on_row) {
  Visit visit{&on_row, nullptr};
  const char* problem = library().read(path.c_str(), form.c_str(), first, last, visit_row, &visit);
  if (visit.thrown) std::rethrow_exception(visit.thrown);
  check_outcome(problem, path);
}

PackedBytes::PackedBytes(std::filesystem::path path, const std::string& packing)
    : path_(std::move(path)) {
  check_outcome(library().open_bytes(path_.c_str(), packing.c_str(), &stream_), path_);
}

PackedBytes::~PackedBytes() {
  if (stream_ != nullptr) library().close_bytes(stream_);
}

std::size_t PackedBytes::read(char* bytes, std::size_t size) {
  std::size_t count = 0;
  check_outcome(library().read_bytes(stream_, bytes, size, &count), path_);
  return count;
}

}  // namespace slime::buffer
