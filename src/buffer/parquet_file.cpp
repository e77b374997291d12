#include "buffer/parquet_file.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <exception>

#include "buffer/parquet/parquet_library.h"
#include "core/error.h"

namespace slime::buffer {
namespace {

struct Library {
  SlimeParquetCount count = nullptr;
  SlimeParquetRead read = nullptr;
  std::string problem;
};

std::filesystem::path library_path() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path() / "libslime_parquet.so";
}

Library load() {
  Library library;
  void* handle = ::dlopen(library_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    library.problem = fmt::format(
        "Parquet needs libslime_parquet.so beside the program ({}); it is built where "
        "-DSLIME_ARROW names the folder of the pyarrow package. Without it, pandas converts: "
        "read_parquet(path).to_json(path, orient=\"records\", lines=True)",
        why != nullptr ? why : "not found");
    return library;
  }
  library.count = reinterpret_cast<SlimeParquetCount>(::dlsym(handle, kSlimeParquetCount));
  library.read = reinterpret_cast<SlimeParquetRead>(::dlsym(handle, kSlimeParquetRead));
  if (library.count == nullptr || library.read == nullptr)
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

void require_parquet_library() { library(); }

int64_t count_parquet_rows(const std::filesystem::path& path) {
  int64_t num_rows = 0;
  check_outcome(library().count(path.c_str(), &num_rows), path);
  return num_rows;
}

void read_parquet_rows(const std::filesystem::path& path, int64_t first, int64_t last,
                       const std::function<bool(std::string_view json)>& on_row) {
  Visit visit{&on_row, nullptr};
  const char* problem = library().read(path.c_str(), first, last, visit_row, &visit);
  if (visit.thrown) std::rethrow_exception(visit.thrown);
  check_outcome(problem, path);
}

}  // namespace slime::buffer
