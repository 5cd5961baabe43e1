// One rank of Open MPI's part of the benchmark: the same loop as the other ranks.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	int rank;
	double budget = atof(argv[2]);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (char *size = strtok(argv[1], ","); size; size = strtok(NULL, ",")) {
		long bytes = atol(size), n = bytes / 4;
		float *in = calloc(n, 4), *out = calloc(n, 4);
		double once = 0;
		for (int i = 0; i < 4; i++) {
			double t = MPI_Wtime();
			MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			once = MPI_Wtime() - t;
		}
		long count = budget / once;
		count = count < 7 ? 7 : count > 20000 ? 20000 : count;
		MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
		double *times = calloc(count, sizeof *times);
		for (long i = 0; i < count; i++) {
			double t = MPI_Wtime();
			MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			times[i] = MPI_Wtime() - t;
		}
		if (rank == 0) {
			qsort(times, count, sizeof *times, compare);
			printf("%ld %.2f %.2f %.2f\n", bytes, times[0] * 1e6, times[count / 2] * 1e6, times[count - 1] * 1e6);
			fflush(stdout);
		}
		free(in), free(out), free(times);
	}
	MPI_Finalize();
	return 0;
}
