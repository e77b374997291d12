// Calls an answer in C++ on sets of inputs and writes what came out. Runs in the sandbox, linked with the answer, which can do here
// what it likes: nothing that this program says is believed. What counts is the bytes of all outputs, compared outside, and the
// processor time that the kernel counts for the process.
//
//   program INPUTS OUTPUT    INPUTS: words of 8 bytes: sets, tensors of a set, bytes of one output; then for each set its tensors:
//                            rank, shape, bytes, and the elements, filled up to 64 bytes. OUTPUT: a named pipe; the outputs, end to end.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Tensor {
  const void* data;
  const int64_t* shape;
};
// Takes the tensors apart for the answer's function; grade.py writes it behind the answer.
extern "C" void call_answer(const Tensor* tensors, void* out);

int main(int count, char** words) {
  if (count != 3) return 2;
  const int file = ::open(words[1], O_RDONLY);
  struct stat about;
  if (file < 0 || ::fstat(file, &about) != 0) return 2;
  void* const mapped = ::mmap(nullptr, about.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
  if (mapped == MAP_FAILED) return 2;
  const char* const base = static_cast<const char*>(mapped);
  const auto* at = reinterpret_cast<const int64_t*>(base);
  const int64_t sets = at[0], tensors = at[1], bytes = at[2];
  at += 8;
  std::vector<Tensor> inputs;
  for (int64_t i = 0; i < sets * tensors; ++i) {
    const int64_t rank = at[0], size = at[rank + 1];
    const char* elements = reinterpret_cast<const char*>(at + rank + 2);
    elements = base + ((elements - base) + 63) / 64 * 64;
    inputs.push_back({elements, at + 1});
    at = reinterpret_cast<const int64_t*>(elements + (size + 63) / 64 * 64);
  }
  const int64_t room = (bytes + 63) / 64 * 64;
  char* const outputs = static_cast<char*>(std::aligned_alloc(64, sets * room + 64));
  std::memset(outputs, 0xFF, sets * room);  // no number: what is not written is seen
  for (int64_t i = 0; i < sets; ++i) call_answer(inputs.data() + i * tensors, outputs + i * room);
  const int out = ::open(words[2], O_WRONLY);
  for (int64_t i = 0; i < sets; ++i) {
    for (int64_t done = 0; done < bytes;) {
      const ssize_t written = ::write(out, outputs + i * room + done, bytes - done);
      if (written <= 0) return 2;
      done += written;
    }
  }
  ::_exit(0);
}
