#pragma once

// A folder of files for readers that take a directory: in memory where there is a file system for
// that, gone when the program ends.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

class FuzzFolder {
 public:
  FuzzFolder() {
    const std::filesystem::path memory = "/dev/shm";
    std::string name =
        (std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path()) /
        "slime-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~FuzzFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

 private:
  std::filesystem::path path_;
};
