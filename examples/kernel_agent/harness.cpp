// Calls a kernel so often that its time can be read, and prints what came out. Linked with the file that has `kernel`.
//
// Input: a seed, n, m, k, and how often. Each call's result goes into the next one's matrix a, every element of it, so that the
// numbers in the end need all results before them. What is printed is compared by whoever drew the seed.

#include <cstdint>
#include <cstdio>
#include <vector>

void kernel(int n, int m, int k, const float* a, const float* b, float* c);

int main() {
  unsigned long long state;
  int n, m, k, repeats;
  if (scanf("%llu %d %d %d %d", &state, &n, &m, &k, &repeats) != 5) return 2;
  const auto draw = [&] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<float>(static_cast<int32_t>(state >> 32)) / 2147483648.0f;
  };
  std::vector<float> a(n * k), b(k * m), c(n * m);
  for (float& x : a) x = draw();
  for (float& x : b) x = draw();
  for (int r = 0; r < repeats; ++r) {
    for (float& x : c) x = 0;
    kernel(n, m, k, a.data(), b.data(), c.data());
    for (int t = 0, u = 0; t < n * m; ++t) {
      a[u] = 0.9f * a[u] + 0.01f * c[t];
      if (++u == n * k) u = 0;
    }
  }
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    for (int j = 0; j < m; ++j) sum += static_cast<double>(c[i * m + j]) * draw();
    printf("%.6g\n", sum);
  }
}
