// Two ranks of real MPI sum their numbers. No GoogleTest: every rank must reach MPI_Finalize.
#include <mpi.h>

#include <cstdio>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1;
  int sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const bool right = size == 2 && sum == 3;
  std::printf("rank %d of %d: sum %d, expected 3 over 2 ranks\n", rank, size, sum);
  MPI_Finalize();
  return right ? 0 : 1;
}
